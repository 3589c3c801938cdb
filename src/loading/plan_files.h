// A plan file with the problem that it is for, compiled and simulated: all that running it needs.
#pragma once

#include <memory>
#include <string>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "decide/plan_io.h"
#include "decide/strategy.h"
#include "loading/problem_files.h"
#include "sim/simulator.h"

namespace heterog::loading {

sim::Simulated simulate_strategy(const cost::Problem& problem, const decide::Strategy& strategy,
                                 const compiler::CompileOptions& options);

struct LoadedPlan {
  std::shared_ptr<const cost::Problem> problem;
  decide::PlanRecord record;
  sim::Simulated simulated;
  graph::KnownBatches known = {};  // for which the graph is known to hold
};

// Batch and grouping are the plan's; a batch that is given must be the same. `order`: in place of
// the plan's own, unless empty.
LoadedPlan load_plan(const std::string& path, ProblemOptions options,
                     const std::string& order = "");

}  // namespace heterog::loading
