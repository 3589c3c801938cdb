// Schedule, latest starts, priorities, and again.
#include "sim/improved_order.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/order.h"
#include "sim/forward_backward.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::TaskKind;
using decide::OpPriority;
using decide::OrderPolicy;
using decide::Strategy;

// Of the ops that a plan runs, the earliest start first. Priorities are those of ops: what stands
// between ops follows from them (compiler/order.h).
std::vector<OpPriority> priorities_by(const Plan& plan,
                                      const IdVector<TaskId, Nanoseconds>& start) {
  struct Instance {
    TaskId task;
    OpPriority priority;
  };
  std::vector<Instance> instances;
  std::vector<std::uint32_t> count;  // of each op
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kCompute && plan.kind[task] != TaskKind::kUpdate) continue;
    const OpId op = plan.op[task];
    if (op.value() >= count.size()) count.resize(op.value() + std::size_t{1});
    instances.push_back({task, {op, count[op.value()]++, 0}});
  }
  std::ranges::stable_sort(instances, {}, [&](const Instance& one) { return start[one.task]; });
  std::vector<OpPriority> priorities;
  auto urgency = static_cast<std::int64_t>(instances.size());
  for (Instance& one : instances) {
    one.priority.priority = urgency--;
    priorities.push_back(one.priority);
  }
  return priorities;
}

struct Rounds {
  const SimResult* last = nullptr;
  std::vector<OpPriority> priorities;  // of the last round
};

Rounds run_rounds(const Strategy& strategy, Plan& plan, Simulator& simulator,
                  const EachRound& each) {
  Rounds rounds{&simulator.simulate_timeline(plan, strategy.order), {}};
  if (each) each(*rounds.last);
  if (strategy.order_rounds == 0) return rounds;
  ForwardBackward improver(plan);
  for (int round = 0; round < strategy.order_rounds; ++round) {
    std::vector<OpPriority> next = priorities_by(plan, improver.latest_starts(*rounds.last));
    if (next == rounds.priorities) break;
    rounds.priorities = std::move(next);
    compiler::set_order(plan, OrderPolicy::kPriority, rounds.priorities);
    rounds.last = &simulator.simulate_timeline(plan, OrderPolicy::kPriority);
    if (each) each(*rounds.last);
  }
  return rounds;
}

}  // namespace

const SimResult& simulate_rounds(const Strategy& strategy, Plan& plan, Simulator& simulator,
                                 const EachRound& each) {
  if (strategy.order_rounds > 0) return *run_rounds(strategy, plan, simulator, each).last;
  const SimResult& result = simulator.simulate(plan, strategy.order);
  if (each) each(result);
  return result;
}

Simulated simulated_in_order(const Strategy& strategy, Plan plan) {
  Simulator simulator;
  Simulated simulated{.plan = std::move(plan)};
  simulated.result = *run_rounds(strategy, simulated.plan, simulator, {}).last;
  return simulated;
}

Strategy with_priorities_of_rounds(const Strategy& strategy, Plan plan) {
  if (strategy.order_rounds == 0) return strategy;
  Simulator simulator;
  Strategy spelled = strategy;
  spelled.priorities = run_rounds(strategy, plan, simulator, {}).priorities;
  spelled.order = OrderPolicy::kPriority;
  spelled.pattern = decide::Pattern::kNone;
  spelled.order_rounds = 0;
  return spelled;
}

}  // namespace heterog::sim
