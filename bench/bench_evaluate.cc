// Whole evaluations per second: a strategy compiled, ranked, simulated and rewarded.
//
//     build/release/bin/bench_evaluate        (from the root of the repository)
//
// Strategies are drawn as a search draws them: HeteroG's M+4 actions, one for most groups and any
// for a tenth of them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "oracle/evaluator.h"
#include "problems.h"
#include "space/action_space.h"

namespace heterog::bench {
namespace {

std::vector<decide::Strategy> draw(const cost::Problem& problem, std::size_t count) {
  const space::ActionSpace space(problem);
  Rng rng(1);
  std::vector<decide::Strategy> strategies;
  for (std::size_t i = 0; i < count; ++i) {
    const auto base = space.id(space::kReplicated[i % space::kReplicated.size()]);
    std::vector<space::ActionId> actions;
    for (std::size_t g = 0; g < problem.grouping.count(); ++g) {
      const space::ActionId other(rng.below(space.size()));
      actions.push_back(rng.below(10) > 0 ? base : other);
    }
    strategies.push_back(space.strategy(actions));
  }
  return strategies;
}

// BERT-large, batch 48, on HeteroG's 8 GPUs.
std::unique_ptr<const cost::Problem> bert_large() {
  return problem("bert_large24", shipped_cluster("heterog-8gpu"), 48);
}

// Evaluations a second of the fastest turn, so that other work on the machine counts little.
class Counter {
 public:
  template <class Work>
  void turn(std::size_t evaluations, Work work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    fastest_ = std::max(fastest_, static_cast<double>(evaluations) / elapsed.count());
  }
  void report(benchmark::State& state) const {
    state.counters["evaluations_per_second"] = fastest_;
  }

 private:
  double fastest_ = 0;
};

// EV-AR and CP-AR in turns, so that nothing can be taken from the plan before.
void evaluate_all_reduce(benchmark::State& state) {
  const auto problem = bert_large();
  const auto sync = decide::SyncMethod::kAllReduce;
  const decide::Strategy strategies[] = {
      decide::uniform_strategy(*problem, decide::even_decision(*problem, sync)),
      decide::uniform_strategy(*problem, decide::UnitDecision{{{DeviceId(0), 2},
                                                               {DeviceId(1), 2},
                                                               {DeviceId(2), 1},
                                                               {DeviceId(3), 1},
                                                               {DeviceId(4), 1},
                                                               {DeviceId(5), 1},
                                                               {DeviceId(6), 1},
                                                               {DeviceId(7), 1}},
                                                              sync})};
  oracle::Evaluator evaluator(*problem);
  Counter counter;
  for (auto _ : state) {
    counter.turn(2, [&] {
      for (const decide::Strategy& strategy : strategies) {
        benchmark::DoNotOptimize(evaluator.evaluate(strategy));
      }
    });
  }
  counter.report(state);
}
BENCHMARK(evaluate_all_reduce)->Unit(benchmark::kMillisecond)->MinTime(2);

// Drawn strategies on `threads` threads, an evaluator each.
void evaluate_drawn(benchmark::State& state) {
  const auto problem = bert_large();
  const auto strategies = draw(*problem, 64);
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::vector<std::unique_ptr<oracle::Evaluator>> evaluators;
  for (int i = 0; i < pool.threads(); ++i) {
    evaluators.push_back(std::make_unique<oracle::Evaluator>(*problem));
  }
  Counter counter;
  for (auto _ : state) {
    counter.turn(strategies.size(), [&] {
      pool.run(strategies.size(), [&](int worker, std::size_t i) {
        benchmark::DoNotOptimize(evaluators[worker]->evaluate(strategies[i]));
      });
    });
  }
  counter.report(state);
}
BENCHMARK(evaluate_drawn)
    ->Arg(1)
    ->Arg(2)
    ->ArgName("threads")
    ->Unit(benchmark::kMillisecond)
    ->MinTime(2)
    ->UseRealTime();

// EV-AR with one group at a time on another action: the moves of a local search.
void evaluate_local_moves(benchmark::State& state) {
  const auto problem = bert_large();
  const space::ActionSpace space(*problem);
  std::vector<space::ActionId> actions(problem->grouping.count(),
                                       space.id({.placement = space::Placement::kEven}));
  std::vector<decide::Strategy> strategies;
  Rng rng(1);
  for (int i = 0; i < 50; ++i) {
    space::ActionId& action = actions[rng.below(actions.size())];
    const space::ActionId before = action;
    action = space::ActionId(rng.below(space.size()));
    strategies.push_back(space.strategy(actions));
    action = before;
  }
  oracle::Evaluator evaluator(*problem);
  Counter counter;
  for (auto _ : state) {
    counter.turn(strategies.size(), [&] {
      for (const decide::Strategy& strategy : strategies) {
        benchmark::DoNotOptimize(evaluator.evaluate(strategy));
      }
    });
  }
  counter.report(state);
}
BENCHMARK(evaluate_local_moves)->Unit(benchmark::kMillisecond)->MinTime(2);

}  // namespace
}  // namespace heterog::bench

BENCHMARK_MAIN();
