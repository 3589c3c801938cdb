// What every planner is: a function from a problem and a budget to a strategy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "oracle/batch_evaluator.h"

namespace heterog::search {

using oracle::BatchEvaluator;
using oracle::better;
using oracle::Budget;
using oracle::Evaluation;
using oracle::Measured;

struct PlannerContext {
  oracle::Oracle& oracle;  // what strategies are believed to cost; it knows the problem
  Rng rng{0};
  Budget budget;
  // What strategies come to where they are tried out, which costs more than a thought: asked by
  // planners that measure in their papers. Its problem has the times that a trial shows, of what is
  // in it. Null: as they are believed to.
  oracle::Oracle* trials = nullptr;
  const cost::Problem& problem() const { return oracle.problem(); }
  oracle::Oracle& tried() const { return trials ? *trials : oracle; }
};

// A baseline at its better order.
struct BaselineResult {
  std::string name;
  Evaluation evaluation;
};

struct PlannerResult {
  decide::Strategy strategy;
  Evaluation evaluation;
  std::int64_t evaluations = 0;  // strategies that the oracle was asked about
  std::int64_t refused = 0;  // of these, dropped as no strategy of the problem: bugs of a search
  // Of a planner that tries several ways: which one found it ("ev-ar", "estimate + local-search").
  std::string found_by;
  // Of one that looks at the baselines, one per name; "single" is its best device.
  std::vector<BaselineResult> baselines;
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual PlannerResult plan(PlannerContext& context) const = 0;
};

}  // namespace heterog::search
