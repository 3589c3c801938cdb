// Finds the tasks of every turn, puts a task between neighbours, and numbers all anew.
#include "compiler/turns.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "compiler/permute_tasks.h"
#include "decide/pass_turns.h"

namespace heterog::compiler {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;

// All turns that there may be, device by device, each device's in their order.
struct Turns {
  std::int64_t of_each = 0;
  std::size_t size = 0;
  std::uint32_t at(DeviceId device, std::int64_t turn) const {
    return static_cast<std::uint32_t>(device.value() * of_each + turn);
  }
  DeviceId device(std::uint32_t turn) const { return DeviceId(turn / of_each); }
  std::int64_t number(std::uint32_t turn) const { return turn % of_each; }
};

// Where memory is so short that forward passes run again, gradients are added to those of earlier
// turns in the turn that makes them. Elsewhere this is put off until a device has nothing else to
// do, which is faster and keeps the gradients of many turns.
void gather_gradients(const decide::Strategy& strategy, const Turns& turns, const Plan& plan,
                      IdVector<TaskId, std::uint32_t>& turn) {
  IdVector<DeviceId, std::uint8_t> is_short(plan.device_count, 0);
  for (const decide::UnitDecision& unit : strategy.units) {
    if (!unit.recompute) continue;
    for (const decide::Replica& replica : unit.replicas) is_short[replica.device] = 1;
  }
  for (TaskId task : plan.task_ids()) {
    if (turn[task] == kNone || !is_short[plan.device[task]]) continue;
    for (TaskId next : plan.successors[task]) {
      const bool adds_up =
          plan.kind[next] == TaskKind::kAccumulate && plan.device[next] == plan.device[task];
      if (adds_up && (turn[next] == kNone || turns.number(turn[next]) < turns.number(turn[task]))) {
        turn[next] = turn[task];
      }
    }
  }
}

// The turn of each task, or kNone.
IdVector<TaskId, std::uint32_t> turns_of_tasks(const cost::Problem& problem,
                                               const decide::Strategy& strategy, const Turns& turns,
                                               const decide::PassTurns& passes,
                                               std::span<const EmittedAgain> again,
                                               const Plan& plan) {
  const IdVector<OpId, std::uint8_t> between =
      decide::ops_between_turns(problem, decide::units_of_ops(problem, strategy));
  const auto turn_of = [&](OpId op, TaskId task) {
    if (between[op] || !passes.has_turns(op)) return kNone;
    return turns.at(plan.device[task], passes.turn(op, plan.device[task], plan.begin[task]));
  };
  IdVector<TaskId, std::uint32_t> turn(plan.task_count(), kNone);
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kCompute) turn[task] = turn_of(plan.op[task], task);
  }
  for (const EmittedAgain& one : again) {
    for (std::uint32_t i = 0; i < one.count; ++i) {
      const TaskId task(one.task.value() + i);
      turn[task] = turn_of(one.reader, task);
    }
  }
  gather_gradients(strategy, turns, plan, turn);
  return turn;
}

// The tasks of the new plan: those of the old one, and behind them the tasks between turns, each
// between the last tasks of one turn and the first of the next.
struct Nodes {
  const Csr<TaskId, TaskId>& successors;   // of the old plan
  IdVector<TaskId, std::uint32_t> behind;  // the task between turns that waits for it, or kNone
  std::vector<std::uint32_t> ends;         // the turn that each task between turns ends
  std::vector<std::vector<std::uint32_t>> opens;  // parallel: who waits for it

  std::size_t tasks() const { return behind.size(); }
  std::size_t size() const { return tasks() + ends.size(); }
  template <class Visit>
  void each_next(std::uint32_t node, Visit visit) const {
    if (node >= tasks()) {
      for (std::uint32_t next : opens[node - tasks()]) visit(next);
      return;
    }
    for (TaskId next : successors[TaskId(node)]) visit(next.value());
    if (behind[TaskId(node)] != kNone) visit(behind[TaskId(node)]);
  }
};

Nodes nodes_of(const Turns& turns, const IdVector<TaskId, std::uint32_t>& turn, const Plan& plan) {
  // Those with nobody of their turn behind them, and before them.
  IdVector<TaskId, std::uint8_t> is_last(plan.task_count(), 1), is_first(plan.task_count(), 1);
  for (TaskId task : plan.task_ids()) {
    if (turn[task] == kNone) continue;
    for (TaskId next : plan.successors[task]) {
      if (turn[next] == turn[task]) is_last[task] = is_first[next] = 0;
    }
  }
  std::vector<std::vector<std::uint32_t>> first(turns.size);
  for (TaskId task : plan.task_ids()) {
    if (turn[task] != kNone && is_first[task]) first[turn[task]].push_back(task.value());
  }
  Nodes nodes{plan.successors, IdVector<TaskId, std::uint32_t>(plan.task_count(), kNone), {}, {}};
  std::vector<std::uint32_t> behind_turn(turns.size, kNone);
  std::uint32_t before = kNone;
  for (std::uint32_t t = 0; t < turns.size; ++t) {
    if (first[t].empty()) continue;
    if (before != kNone && turns.device(before) == turns.device(t)) {
      behind_turn[before] = static_cast<std::uint32_t>(nodes.size());
      nodes.ends.push_back(before);
      nodes.opens.push_back(std::move(first[t]));
    }
    before = t;
  }
  for (TaskId task : plan.task_ids()) {
    if (turn[task] != kNone && is_last[task]) nodes.behind[task] = behind_turn[turn[task]];
  }
  return nodes;
}

// A topological order, of those that could come next the one that stood first in the old plan: what
// stands at its end stays there. Shorter than all nodes if they go round in a circle.
std::vector<std::uint32_t> topological_order(const Nodes& nodes) {
  std::vector<std::uint32_t> waits_for(nodes.size(), 0), place(nodes.size(), 0);
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (node < nodes.tasks()) place[node] = node;
    nodes.each_next(node, [&](std::uint32_t next) {
      ++waits_for[next];
      if (next >= nodes.tasks()) place[next] = std::max(place[next], node);
    });
  }
  using Item = std::pair<std::uint32_t, std::uint32_t>;  // place, node
  std::priority_queue<Item, std::vector<Item>, std::greater<>> open;
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (waits_for[node] == 0) open.emplace(place[node], node);
  }
  std::vector<std::uint32_t> order;
  order.reserve(nodes.size());
  while (!open.empty()) {
    const std::uint32_t node = open.top().second;
    open.pop();
    order.push_back(node);
    nodes.each_next(node, [&](std::uint32_t next) {
      if (--waits_for[next] == 0) open.emplace(place[next], next);
    });
  }
  return order;
}

// The earliest turn of a device of which a task could not be placed.
void refuse_circle(const cost::Problem& problem, const decide::Strategy& strategy,
                   const Turns& turns, const IdVector<TaskId, std::uint32_t>& turn,
                   const std::vector<std::uint32_t>& order) {
  IdVector<TaskId, std::uint8_t> placed(turn.size(), 0);
  for (std::uint32_t node : order) {
    if (node < turn.size()) placed[TaskId(node)] = 1;
  }
  std::uint32_t stuck = kNone;
  for (TaskId task : id_range<TaskId>(turn.size())) {
    if (placed[task] || turn[task] == kNone) continue;
    if (stuck == kNone || turns.number(turn[task]) < turns.number(stuck)) stuck = turn[task];
  }
  ENSURE(stuck != kNone);
  fail_input(
      "strategy: strict: turn {} of device '{}' waits for a turn that comes after it in pattern "
      "{}; expected turns in an order that the dependencies allow, or strict false",
      turns.number(stuck), problem.cluster->device(turns.device(stuck)).name,
      decide::pattern_name(strategy.pattern));
}

}  // namespace

Plan take_turns(const cost::Problem& problem, const decide::Strategy& strategy,
                const decide::Layout& layout, std::span<const EmittedAgain> again, Plan plan) {
  const decide::PassTurns passes(problem, strategy, layout);
  const Turns turns{passes.bound(), plan.device_count * static_cast<std::size_t>(passes.bound())};
  const auto turn = turns_of_tasks(problem, strategy, turns, passes, again, plan);
  const Nodes nodes = nodes_of(turns, turn, plan);
  const std::vector<std::uint32_t> order = topological_order(nodes);
  if (order.size() < nodes.size()) refuse_circle(problem, strategy, turns, turn, order);

  // What the task behind a turn is named by: its last op, and its samples.
  struct Named {
    OpId op;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  std::vector<Named> named(turns.size);
  for (TaskId task : plan.task_ids()) {
    if (turn[task] == kNone) continue;
    Named& name = named[turn[task]];
    name.op = plan.op[task];
    if (plan.kind[task] != TaskKind::kCompute) continue;
    name.begin = plan.begin[task];
    name.end = plan.end[task];
  }
  const std::size_t tasks = nodes.tasks();
  permute_tasks(plan, order);
  Csr<TaskId, Hold> holds;
  std::vector<std::uint32_t> place(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    if (order[i] < tasks) {
      holds.push_row(plan.holds[TaskId(order[i])]);
      continue;
    }
    const std::uint32_t ended = nodes.ends[order[i] - tasks];
    const TaskId task(i);
    plan.op[task] = named[ended].op;
    plan.device[task] = turns.device(ended);
    plan.begin[task] = named[ended].begin;
    plan.end[task] = named[ended].end;
    holds.push({plan.compute_stream(plan.device[task]), 0});
    holds.end_row();
  }
  plan.holds = std::move(holds);
  Csr<TaskId, TaskId> successors;
  plan.predecessors.assign(order.size(), 0);
  std::vector<TaskId> next;
  for (std::uint32_t node : order) {
    next.clear();
    nodes.each_next(node, [&](std::uint32_t one) { next.emplace_back(place[one]); });
    std::ranges::sort(next);
    for (TaskId one : next) ++plan.predecessors[one];
    successors.push_row(next);
  }
  plan.successors = std::move(successors);
  return plan;
}

}  // namespace heterog::compiler
