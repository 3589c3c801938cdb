// Whole evaluations per second: a strategy compiled, ranked, simulated and rewarded.
//
//     build/release/bin/bench_evaluate        (from the root of the repository)
//
// The strategies are random choices among HeteroG's M+4 actions a group, as a search draws them.
#include <benchmark/benchmark.h>

#include <chrono>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "planner/action_space.h"
#include "planner/batch_evaluator.h"
#include "problems.h"

namespace heterog::bench {
namespace {

// A strategy whose groups follow one base action but for a tenth, drawn at random.
compiler::Strategy drawn_strategy(const cost::Problem& problem, Rng& rng) {
  const int actions = planner::action_count(problem);
  const int base = actions - 1 - static_cast<int>(rng.below(4));
  compiler::Strategy strategy;
  for (std::size_t i = 0; i < problem.grouping.count(); ++i) {
    const int action = rng.below(10) ? base : static_cast<int>(rng.below(actions));
    strategy.units.push_back(planner::action_decision(problem, action));
  }
  return strategy;
}

}  // namespace
}  // namespace heterog::bench
BENCHMARK_MAIN();
