// A trial by simulation, where costs are hidden.
#pragma once

#include <memory>

#include "compiler/compile.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "tune/fitted_costs.h"

namespace heterog::tune {

// One step of the strategy as it is in `world` (cost/hidden.h), recorded as a run would be: beside
// the plan that `costs` make of it.
Trial hidden_trial(const std::shared_ptr<const cost::Problem>& costs, const cost::Problem& world,
                   const decide::Strategy& strategy, const compiler::CompileOptions& how);

}  // namespace heterog::tune
