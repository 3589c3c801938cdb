// Forward and backward schedules in turns, from several orders.
#include "oracle/improve_order.h"

#include <algorithm>
#include <map>
#include <vector>

#include "compiler/compile.h"
#include "compiler/layout.h"
#include "compiler/order.h"
#include "compiler/pass_turns.h"
#include "oracle/forward_backward.h"
#include "sim/simulator.h"

namespace heterog::oracle {
namespace {

using compiler::OrderPolicy;
using compiler::Plan;
using compiler::Strategy;
using compiler::TaskKind;

// Of the ops that a plan runs, the earliest start first.
std::vector<compiler::OpPriority> priorities_by(const Plan& plan,
                                                const IdVector<TaskId, Nanoseconds>& start) {
  struct Instance {
    TaskId task;
    compiler::OpPriority priority;
  };
  std::vector<Instance> instances;
  std::map<OpId, std::uint32_t> count;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kCompute && plan.kind[task] != TaskKind::kUpdate) continue;
    const OpId op = plan.op[task];
    instances.push_back({task, {op, count[op]++, 0}});
  }
  std::stable_sort(instances.begin(), instances.end(), [&](const Instance& a, const Instance& b) {
    return start[a.task] < start[b.task];
  });
  std::vector<compiler::OpPriority> priorities;
  auto urgency = static_cast<std::int64_t>(instances.size());
  for (Instance& one : instances) {
    one.priority.priority = urgency--;
    priorities.push_back(one.priority);
  }
  return priorities;
}

// No other order of a pipeline comes near its turns, and where it has most to gain is from there.
bool in_stages(const Strategy& strategy) {
  return strategy.pattern != compiler::Pattern::kNone &&
         strategy.pattern != compiler::Pattern::kDepthFirst;
}

}  // namespace

std::optional<BetterOrder> improve_order(const cost::Problem& problem, const Strategy& strategy,
                                         const compiler::CompileOptions& options, int rounds) {
  if (rounds == 0) return std::nullopt;
  Plan plan = compiler::compile(problem, strategy, options);
  ForwardBackward improver(plan);
  sim::Simulator simulator;
  BetterOrder best{.strategy = strategy, .measured = {}};
  bool is_better = false;
  // The timeline is the simulator's until its next call.
  const compiler::Layout layout = compiler::lay_out(problem, strategy);
  const auto run = [&](const Strategy& in_order) -> const sim::SimResult& {
    compiler::set_order(plan, in_order.order, compiler::priorities_of(problem, in_order, layout));
    return simulator.simulate_timeline(plan, in_order.order);
  };
  const auto keep_better = [&](const Strategy& in_order, const sim::SimResult& result) {
    Measured measured = judge(problem, result.step, result.peak_bytes);
    if (!better(measured.evaluation, best.measured.evaluation)) return;
    best = {.strategy = in_order, .measured = std::move(measured)};
    is_better = true;
  };
  const sim::SimResult& own = run(strategy);
  best.measured = judge(problem, own.step, own.peak_bytes);
  std::vector<Strategy> starts;
  for (OrderPolicy order : compiler::kSearchedOrders) {
    if (in_stages(strategy)) break;
    Strategy& start = starts.emplace_back(strategy);
    compiler::set_plain_order(start, order);
    keep_better(start, run(start));
  }
  if (strategy.order == OrderPolicy::kPriority) starts.push_back(strategy);
  // Priorities and turns do not go together.
  if (strategy.strict) starts.clear();
  for (Strategy& in_order : starts) {
    const sim::SimResult* result = &run(in_order);
    if (result->step > best.measured.evaluation.step / 8 * 9) continue;  // too far off to catch up
    Nanoseconds before = result->step;
    in_order.order = OrderPolicy::kPriority;
    in_order.pattern = compiler::Pattern::kNone;
    for (int round = 0; round < rounds; ++round) {
      in_order.priorities = priorities_by(plan, improver.latest_starts(*result));
      result = &run(in_order);
      keep_better(in_order, *result);
      if (result->step == before) break;  // it has settled
      before = result->step;
    }
  }
  return is_better ? std::optional(std::move(best)) : std::nullopt;
}

}  // namespace heterog::oracle
