// A trial by simulation, where costs are hidden.
#pragma once

#include <memory>

#include "compiler/compile.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "tune/fitted_costs.h"

namespace heterog::tune {

// One step of the strategy as it is in `world` (cost/hidden.h), with the servers that `costs`
// choose and its order by the world's; every task is off by nothing beside the world's plan, which
// is that of the trial.
Trial hidden_trial(const std::shared_ptr<const cost::Problem>& costs,
                   const std::shared_ptr<const cost::Problem>& world,
                   const decide::Strategy& strategy, const compiler::CompileOptions& how);

}  // namespace heterog::tune
