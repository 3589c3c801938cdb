// Simulated plans of toy problems, for tests of what is said of them.
#pragma once

#include "compiler/compile.h"
#include "compiler/problems.h"
#include "compiler/strategy.h"
#include "sim/simulator.h"

namespace heterog::explain {

inline sim::Simulated simulated_plan(const cost::Problem& problem,
                                     const compiler::Strategy& strategy) {
  sim::Simulated simulated{.plan = compiler::compile(problem, strategy)};
  simulated.result = sim::simulate(simulated.plan, strategy.order);
  return simulated;
}

inline compiler::Strategy even_strategy(const cost::Problem& problem, compiler::SyncMethod sync) {
  return compiler::uniform_strategy(problem, compiler::even_decision(problem, sync));
}

}  // namespace heterog::explain
