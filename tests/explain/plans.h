// Simulated plans of toy problems, for tests of what is said of them.
#pragma once

#include "compiler/compile.h"
#include "decide/problems.h"
#include "decide/strategy.h"
#include "sim/simulator.h"

namespace heterog::explain {

inline sim::Simulated simulated_plan(const cost::Problem& problem,
                                     const decide::Strategy& strategy) {
  sim::Simulated simulated{.plan = compiler::compile(problem, strategy)};
  simulated.result = sim::simulate(simulated.plan, strategy.order);
  return simulated;
}

inline decide::Strategy even_strategy(const cost::Problem& problem, decide::SyncMethod sync) {
  return decide::uniform_strategy(problem, decide::even_decision(problem, sync));
}

}  // namespace heterog::explain
