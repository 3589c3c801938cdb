// A plan file with the problem that it is for, compiled and simulated.
#pragma once

#include <memory>
#include <string>

#include "cli/options.h"
#include "cli/planning.h"
#include "compiler/plan_io.h"

namespace heterog::cli {

struct LoadedPlan {
  std::shared_ptr<const cost::Problem> problem;
  compiler::PlanRecord record;
  Simulated simulated;
};

// Batch and grouping are the plan's; a batch that is given must be the same. `order`: in place of
// the plan's own, unless empty.
LoadedPlan load_plan(const std::string& path, ProblemOptions options,
                     const std::string& order = "");

}  // namespace heterog::cli
