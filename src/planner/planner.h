// What every planner is: a function from a problem and a budget to a strategy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "compiler/compile.h"
#include "planner/evaluator.h"

namespace heterog::planner {

// How long a planner that searches may go on. `expired` is asked between evaluations; a budget of
// evaluations is reproducible, one of time is not.
struct Budget {
  std::optional<std::int64_t> evaluations;
  std::function<bool()> expired;  // empty: never
};

struct PlannerContext {
  const cost::Problem& problem;
  ThreadPool& threads;
  Rng rng{0};
  Budget budget;
  compiler::CompileOptions compile = {};
};

// A baseline at its better order.
struct BaselineResult {
  std::string name;
  Evaluation evaluation;
};

struct PlannerResult {
  compiler::Strategy strategy;
  Evaluation evaluation;
  std::int64_t evaluations = 0;  // simulated strategies
  // Of a planner that tries several ways: which one found it ("ev-ar", "policy + local-search").
  std::string found_by;
  // Of one that looks at the baselines, one per name; "single" is its best device.
  std::vector<BaselineResult> baselines;
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual PlannerResult plan(PlannerContext& context) const = 0;
};

}  // namespace heterog::planner
