// What every planner is: a function from a problem and a budget to a strategy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
  std::string policy_path;  // of the learned planner; empty: the shipped one
};

struct PlannerResult {
  compiler::Strategy strategy;
  Evaluation evaluation;
  std::int64_t evaluations = 0;  // simulated strategies
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual PlannerResult plan(PlannerContext& context) const = 0;
};

// A row of the registry: explicit, no static-initialiser magic.
struct PlannerEntry {
  std::string_view name;      // "ev-ar"
  std::string_view one_line;  // for `heterog planners`
  bool baseline = false;      // one of the bars that `plan` never falls below
  std::unique_ptr<const Planner> (*make)();
};

// Planners that need no learning, in the order of docs/design.md §9.
std::span<const PlannerEntry> builtin_planners();

}  // namespace heterog::planner
