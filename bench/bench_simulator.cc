// Simulated tasks per second, beside a bare walk over the same graph and a textbook simulator.
//
//     build/release/bin/bench_simulator       (from the root of the repository)
//
// Counters: tasks, tasks_per_second, ns_per_task; ratio_to_floor, time over that of a topological
// walk that does nothing but count predecessors; ratio_to_textbook, the textbook's time over ours.
// All three take turns on the same plan, and each counts with its fastest turn.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>

#include "compiler/compile.h"
#include "oracle/evaluator.h"
#include "problems.h"
#include "search/registry.h"
#include "sim/simulator.h"
#include "textbook_simulator.h"

namespace heterog::bench {
namespace {

using compiler::Plan;
using decide::OrderPolicy;
using decide::SyncMethod;

// Visits every task after its predecessors; returns how many there were.
std::size_t walk(const Plan& plan, IdVector<TaskId, std::uint32_t>& waiting_for,
                 std::vector<TaskId>& stack) {
  waiting_for = plan.predecessors;
  stack.clear();
  for (TaskId task : plan.task_ids()) {
    if (waiting_for[task] == 0) stack.push_back(task);
  }
  std::size_t visited = 0;
  while (!stack.empty()) {
    const TaskId task = stack.back();
    stack.pop_back();
    ++visited;
    for (TaskId next : plan.successors[task]) {
      if (--waiting_for[next] == 0) stack.push_back(next);
    }
  }
  return visited;
}

// The fastest turn so far.
struct Fastest {
  double seconds = std::numeric_limits<double>::infinity();
  template <class Work>
  void time(Work work) {
    const auto begin = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(work());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    seconds = std::min(seconds, elapsed.count());
  }
};

struct Case {
  std::string name;
  std::string model;
  std::size_t devices = 8;  // 8: HeteroG's; else a large cluster
  std::int64_t batch = 0;
  SyncMethod sync = SyncMethod::kAllReduce;
  OrderPolicy order = OrderPolicy::kRank;
  const char* planner = nullptr;  // in place of even shares
};

// What the plan is made of, and its order.
decide::Strategy strategy_of(const cost::Problem& problem, const Case& c) {
  if (!c.planner) {
    decide::Strategy strategy =
        decide::uniform_strategy(problem, decide::even_decision(problem, c.sync));
    strategy.order = c.order;
    return strategy;
  }
  oracle::Evaluator oracle(problem);
  search::PlannerContext context{.oracle = oracle};
  const search::Registry registry(search::builtin_planners());
  return registry.make(c.planner, *problem.cluster)->plan(context).strategy;
}

void simulate(benchmark::State& state, const Case& c) {
  const auto problem = bench::problem(
      c.model, c.devices == 8 ? shipped_cluster("heterog-8gpu") : large_cluster(c.devices),
      c.batch);
  const decide::Strategy strategy = strategy_of(*problem, c);
  const OrderPolicy order = strategy.order;
  const Plan plan = compiler::compile(*problem, strategy);
  sim::Simulator simulator;
  IdVector<TaskId, std::uint32_t> waiting_for;
  std::vector<TaskId> stack;
  Fastest ours, floor, textbook;
  Nanoseconds step = 0, textbook_step = 0;
  for (auto _ : state) {
    ours.time([&] { return step = simulator.simulate(plan, order).step; });
    floor.time([&] { return walk(plan, waiting_for, stack); });
    textbook.time([&] { return textbook_step = TextbookSimulator(plan, order).run(); });
  }
  if (step != textbook_step) throw std::runtime_error("the two simulators differ");
  const auto tasks = static_cast<double>(plan.task_count());
  state.counters["tasks"] = tasks;
  state.counters["tasks_per_second"] = tasks / ours.seconds;
  state.counters["ns_per_task"] = ours.seconds / tasks * 1e9;
  state.counters["ratio_to_floor"] = ours.seconds / floor.seconds;
  state.counters["ratio_to_textbook"] = textbook.seconds / ours.seconds;
}

const Case kCases[] = {
    {"lenet5/8_gpus/ev_ar", "lenet5", 8, 64},
    {"bert_large24/8_gpus/ev_ar", "bert_large24", 8, 48},
    {"bert_large24/8_gpus/ev_ar/fifo", "bert_large24", 8, 48, SyncMethod::kAllReduce,
     OrderPolicy::kFifo},
    {"bert_large24/8_gpus/ev_ps", "bert_large24", 8, 48, SyncMethod::kParameterServer},
    {"bert_large24/8_gpus/32_micro_batches_in_turns", "bert_large24", 8, 48, SyncMethod::kAllReduce,
     OrderPolicy::kRank, "pipedream:micro_batches=32,turns=strict"},
    {"nasnet_a_large/8_gpus/ev_ps", "nasnet_a_large", 8, 192, SyncMethod::kParameterServer},
    {"bert_large24/80_gpus/ev_ar", "bert_large24", 80, 480},
    {"nasnet_a_large/192_gpus/ev_ar", "nasnet_a_large", 192, 768},
};

}  // namespace
}  // namespace heterog::bench

int main(int argc, char** argv) {
  for (const auto& c : heterog::bench::kCases) {
    benchmark::RegisterBenchmark(("simulate/" + c.name).c_str(), heterog::bench::simulate, c)
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.5);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
