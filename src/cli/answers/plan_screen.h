// What `plan` says to a person: one screen.
#pragma once

#include <string>

#include "cli/answers/bfloat16.h"
#include "cli/answers/devices_used.h"
#include "search/planner.h"

namespace heterog::cli {

struct PlanScreen {
  const cost::Problem& problem;
  const search::PlannerResult& found;
  const sim::Simulated& simulated;
  const DevicesUsed& used;
  double plan_seconds = 0;
  std::optional<EmulatedBfloat16> bfloat16 = {};
};

// At most 25 lines with what follows it in `plan`: step and samples a second, the gain over the
// baselines, the bound, memory, the devices and what share of the work each does, gradients.
std::string plan_screen(const PlanScreen& screen);

}  // namespace heterog::cli
