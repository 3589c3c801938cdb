// A plan file with the problem that it is for, compiled and simulated.
#pragma once

#include "cli/options.h"
#include "cli/planning.h"
#include "loading/plan_files.h"

namespace heterog::cli {

using loading::load_plan;
using loading::LoadedPlan;

}  // namespace heterog::cli
