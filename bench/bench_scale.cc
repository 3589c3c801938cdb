// How an evaluation grows with the cluster: BERT-large on 8 to 1,024 GPUs of two types.
//
//     build/release/bin/bench_scale           (from the root of the repository)
//
// Six samples a GPU. even_* compiles, ranks and simulates the plan with all devices, under
// even all-reduce and under even parameter servers; few_* asks oracle::Evaluator, which lets
// one of each kind stand for all where they are alike (compiler/symmetry.h). The fastest turns.
// Counters: tasks; seconds of an evaluation, and of its halves; ns_per_task; plan_bytes_per_task,
// what the plan takes in memory; ratio_to_64_gpus, seconds over those on 64.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "compiler/compile.h"
#include "oracle/evaluator.h"
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

std::unique_ptr<const cost::Problem> problem_on(std::size_t devices) {
  return bench::problem("bert_large24", large_cluster(devices),
                        static_cast<std::int64_t>(6 * devices));
}

// Benchmarks run in the order of their arguments, and more than once until the time is enough.
class RatioTo64 {
 public:
  double of(std::size_t devices, double seconds) {
    if (devices == 64) on_64_ = seconds;
    return on_64_ > 0 ? seconds / on_64_ : 0;
  }

 private:
  double on_64_ = 0;
};

void all_devices(benchmark::State& state, decide::SyncMethod sync, RatioTo64& ratio) {
  const auto devices = static_cast<std::size_t>(state.range(0));
  const auto problem = problem_on(devices);
  const auto strategy = decide::uniform_strategy(*problem, decide::even_decision(*problem, sync));
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
  state.counters["tasks"] = tasks;
  state.counters["seconds"] = compile + simulate;
  state.counters["ns_per_task"] = (compile + simulate) / tasks * 1e9;
  state.counters["compile_seconds"] = compile;
  state.counters["simulate_seconds"] = simulate;
  state.counters["plan_bytes_per_task"] = static_cast<double>(plan_bytes(plan)) / tasks;
  state.counters["ratio_to_64_gpus"] = ratio.of(devices, compile + simulate);
}

void even_all_reduce(benchmark::State& state) {
  static RatioTo64 ratio;
  all_devices(state, decide::SyncMethod::kAllReduce, ratio);
}
void even_servers(benchmark::State& state) {
  static RatioTo64 ratio;
  all_devices(state, decide::SyncMethod::kParameterServer, ratio);
}
void few_devices(benchmark::State& state, decide::SyncMethod sync, RatioTo64& ratio) {
  const auto devices = static_cast<std::size_t>(state.range(0));
  const auto problem = problem_on(devices);
  const auto strategy = decide::uniform_strategy(*problem, decide::even_decision(*problem, sync));
  oracle::Evaluator evaluator(*problem);
  double seconds = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(evaluator.measure(strategy).evaluation.step);
    seconds = std::min(seconds, seconds_since(begin));
  }
  const compiler::PlanOfFew few = compiler::compile_few(*problem, strategy);
  state.counters["devices_in_plan"] = static_cast<double>(few.plan.device_count);
  state.counters["tasks"] = static_cast<double>(few.plan.task_count());
  state.counters["seconds"] = seconds;
  state.counters["ratio_to_64_gpus"] = ratio.of(devices, seconds);
}

void few_all_reduce(benchmark::State& state) {
  static RatioTo64 ratio;
  few_devices(state, decide::SyncMethod::kAllReduce, ratio);
}
void few_sharded(benchmark::State& state) {
  static RatioTo64 ratio;
  few_devices(state, decide::SyncMethod::kSharded, ratio);
}
void on_clusters(benchmark::internal::Benchmark* one) {
  for (const std::int64_t gpus : {8, 64, 256, 512, 1024}) one->Arg(gpus);
  one->ArgName("gpus")->Unit(benchmark::kMillisecond)->MinTime(1);
}
BENCHMARK(even_all_reduce)->Apply(on_clusters);
BENCHMARK(even_servers)->Apply(on_clusters);
BENCHMARK(few_all_reduce)->Apply(on_clusters);
BENCHMARK(few_sharded)->Apply(on_clusters);

}  // namespace
}  // namespace heterog::bench

BENCHMARK_MAIN();
