// How an evaluation grows with the cluster: EV-AR of BERT-large on 8 to 512 GPUs.
//
//     build/release/bin/bench_scale           (from the root of the repository)
//
// Six samples a GPU. Counters: tasks; ns_per_task of a whole evaluation (compiled, ranked,
// simulated; the fastest turn); compile_seconds, simulate_seconds; plan_bytes_per_task, what the
// plan takes in memory; ratio_to_8_gpus, ns_per_task over that on 8 GPUs (1: grows as the tasks
// do).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "compiler/compile.h"
#include "problems.h"
#include "sim/simulator.h"

namespace heterog::bench {
namespace {

template <class... Members>
std::size_t bytes_of(const Members&... members) {
  return ((members.size() * sizeof(*members.begin())) + ...);
}

template <class... Rows>
std::size_t bytes_of_rows(const Rows&... rows) {
  return ((rows.values().size() * sizeof(rows.values()[0]) + rows.offsets().size() * 4) + ...);
}

std::size_t plan_bytes(const compiler::Plan& p) {
  return bytes_of(p.kind, p.op, p.tensor, p.device, p.peer, p.begin, p.end, p.duration,
                  p.moved_bytes, p.payload, p.rank, p.priority, p.predecessors, p.buffers,
                  p.readers, p.workspace) +
         bytes_of_rows(p.successors, p.holds, p.participants, p.carried, p.contributions,
                       p.allocates, p.reads);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void even_all_reduce(benchmark::State& state) {
  const auto devices = static_cast<std::size_t>(state.range(0));
  const auto problem = bench::problem("bert_large24", large_cluster(devices),
                                      static_cast<std::int64_t>(6 * devices));
  const auto strategy = decide::uniform_strategy(
      *problem, decide::even_decision(*problem, decide::SyncMethod::kAllReduce));
  compiler::Plan plan;
  sim::Simulator simulator;
  double compile = std::numeric_limits<double>::infinity(), simulate = compile;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    plan = compiler::compile(*problem, strategy, {}, std::move(plan));
    compile = std::min(compile, seconds_since(begin));
    const auto middle = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(simulator.simulate(plan, strategy.order).step);
    simulate = std::min(simulate, seconds_since(middle));
  }
  const auto tasks = static_cast<double>(plan.task_count());
  const double per_task = (compile + simulate) / tasks * 1e9;
  static double per_task_on_8 = per_task;      // benchmarks run in the order of their arguments,
  if (devices == 8) per_task_on_8 = per_task;  // and more than once until the time is enough
  state.counters["tasks"] = tasks;
  state.counters["ns_per_task"] = per_task;
  state.counters["compile_seconds"] = compile;
  state.counters["simulate_seconds"] = simulate;
  state.counters["plan_bytes_per_task"] = static_cast<double>(plan_bytes(plan)) / tasks;
  state.counters["ratio_to_8_gpus"] = per_task / per_task_on_8;
}
BENCHMARK(even_all_reduce)
    ->Arg(8)
    ->Arg(32)
    ->Arg(128)
    ->Arg(512)
    ->ArgName("gpus")
    ->Unit(benchmark::kMillisecond)
    ->MinTime(3);

}  // namespace
}  // namespace heterog::bench

BENCHMARK_MAIN();
