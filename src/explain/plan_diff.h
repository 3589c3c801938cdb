// Difference of two plans for the same problem: in decisions, and in their effect.
#pragma once

#include <string>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "explain/json.h"
#include "sim/simulator.h"

namespace heterog::explain {

struct ComparedPlan {
  std::string name;
  std::string planner;
  const cost::Problem& problem;  // of the same graph, cluster and batch; grouped as the plan is
  const decide::Strategy& strategy;
  const sim::Simulated& simulated;
};

// The keys of `diff --json`.
OrderedJson diff_json(const ComparedPlan& a, const ComparedPlan& b);
// The largest changes of each kind.
std::string diff_text(const ComparedPlan& a, const ComparedPlan& b);

}  // namespace heterog::explain
