// Priorities: ranks unless a planner gives its own, and what tasks between ops make of those.
#include "compiler/order.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "compiler/compile.h"
#include "compiler/plan_builder.h"
#include "decide/check_strategy.h"
#include "decide/layout.h"
#include "decide/problems.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

std::unique_ptr<const cost::Problem> lenet() { return decide::model_problem("lenet5-tiny", 3, 12); }

decide::Strategy replicated(const cost::Problem& problem, decide::SyncMethod sync) {
  return decide::uniform_strategy(problem, decide::even_decision(problem, sync));
}

// A random priority for every instance of every op that computes.
std::vector<decide::OpPriority> random_priorities(const cost::Problem& problem,
                                                  const decide::Strategy& strategy, Rng& rng) {
  const decide::Layout layout = decide::lay_out(problem, strategy);
  std::vector<decide::OpPriority> priorities;
  for (OpId op : problem.folded->ops) {
    for (std::uint32_t i = 0; i < layout.op_slices(op).size(); ++i) {
      priorities.push_back({op, i, static_cast<std::int64_t>(rng.below(1000)) - 500});
    }
  }
  return priorities;
}

// The places of the tasks in order of urgency.
std::vector<TaskId> by_urgency(const Plan& plan) {
  std::vector<TaskId> tasks(plan.task_count());
  for (TaskId task : plan.task_ids()) tasks[plan.priority[task]] = task;
  return tasks;
}

TEST(Priorities, AreRanksUnlessGiven) {
  const auto problem = lenet();
  const Plan plan = compile(*problem, replicated(*problem, decide::SyncMethod::kParameterServer));
  Nanoseconds last = std::numeric_limits<Nanoseconds>::max();
  for (TaskId task : by_urgency(plan)) {
    EXPECT_LE(plan.rank[task], last);
    last = plan.rank[task];
  }
}

// A chain x1, x2, x3 of 5 each on a stream; each is followed by a gradient, g, of 1 there, which
// goes over one link in 6. Ranks put the gradients behind the chain, and the link is idle until 16.
// Queued ranks: c3 6, g3 7, x3 12; c2 waits for c3: 12, g2 13, x2 18; c1 18, g1 19, x1 24. So every
// gradient comes right after what makes it, and the last of three transfers ends at 6 + 18.
TEST(QueuedRanks, ByHand) {
  PlanBuilder builder(1, 1);
  std::size_t op = 0;
  const auto add = [&](bool on_link, Nanoseconds duration, std::optional<TaskId> after) {
    const TaskId task =
        builder.add_task({.op = OpId(op++), .device = DeviceId(0), .end = 1, .duration = duration});
    const Plan& plan = builder.plan();
    builder.hold(task,
                 {on_link ? plan.link(LinkId(0)) : plan.compute_stream(DeviceId(0)), duration});
    if (after) builder.depend(*after, task);
    return task;
  };
  std::optional<TaskId> before;
  std::vector<TaskId> chain, gradients, sent;
  for (int layer = 0; layer < 3; ++layer) {
    before = add(false, 5, before);
    chain.push_back(*before);
  }
  for (int layer = 0; layer < 3; ++layer) gradients.push_back(add(false, 1, chain[layer]));
  for (int layer = 0; layer < 3; ++layer) sent.push_back(add(true, 6, gradients[layer]));
  Plan plan = std::move(builder).finish();
  plan.static_memory.assign(1, {});
  plan.capacity.assign(1, 1);
  set_order(plan, decide::OrderPolicy::kRank);
  EXPECT_EQ(sim::simulate(plan, decide::OrderPolicy::kRank).step, 34);
  const auto ranks = plan.rank;
  set_order(plan, decide::OrderPolicy::kRankQueued);
  EXPECT_EQ(plan.rank, ranks);
  const std::vector<TaskId> expected = {chain[0], gradients[0], chain[1],     sent[0], gradients[1],
                                        chain[2], sent[1],      gradients[2], sent[2]};
  EXPECT_EQ(by_urgency(plan), expected);
  EXPECT_EQ(sim::simulate(plan, decide::OrderPolicy::kRankQueued).step, 24);
}

// The definition, literally: of the tasks left, the one with the longest path from the start.
std::vector<TaskId> queued_by_definition(const Plan& plan) {
  const std::size_t tasks = plan.task_count();
  IdVector<TaskId, Nanoseconds> head(tasks, 0), queued(tasks, 0);
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) {
      head[next] = std::max(head[next], head[task] + plan.duration[task]);
    }
  }
  std::vector<TaskId> left;
  for (TaskId task : plan.task_ids()) left.push_back(task);
  std::map<ResourceId, Nanoseconds> taken;
  while (!left.empty()) {
    const auto at = std::max_element(left.begin(), left.end(), [&](TaskId a, TaskId b) {
      return std::tuple(head[a], a) < std::tuple(head[b], b);
    });
    const TaskId task = *at;
    left.erase(at);
    Nanoseconds longest = 0;
    for (TaskId next : plan.successors[task]) longest = std::max(longest, queued[next]);
    queued[task] = plan.duration[task] + longest;
    for (const Hold& hold : plan.holds[task]) {
      if (hold.resource.value() < plan.device_count) continue;  // a stream
      queued[task] = std::max(queued[task], taken[hold.resource] + hold.duration);
    }
    for (const Hold& hold : plan.holds[task]) taken[hold.resource] = queued[task];
  }
  std::vector<TaskId> sorted;
  for (TaskId task : plan.task_ids()) sorted.push_back(task);
  std::sort(sorted.begin(), sorted.end(), [&](TaskId a, TaskId b) {
    const auto rest = [&](TaskId t) {
      return std::tuple(plan.op[t], plan.kind[t], plan.device[t], plan.peer[t], plan.begin[t],
                        plan.tensor[t], t);
    };
    return queued[a] != queued[b] ? queued[a] > queued[b] : rest(a) < rest(b);
  });
  // The places of pushes, to the pair of devices that is furthest behind, one after another.
  struct Pair {
    std::vector<TaskId> pushes;  // by urgency
    std::size_t next = 0;
    Nanoseconds done = 0, all = 0;
    std::size_t apart = 0;
  };
  std::map<std::pair<DeviceId, DeviceId>, Pair> pairs;
  for (TaskId task : sorted) {
    if (plan.kind[task] != TaskKind::kPush) continue;
    Pair& pair = pairs[{plan.peer[task], plan.device[task]}];
    pair.pushes.push_back(task);
    pair.all += plan.duration[task];
    pair.apart = (plan.device[task].value() + plan.device_count - plan.peer[task].value()) %
                 plan.device_count;
  }
  std::vector<TaskId> order;
  while (true) {
    Pair* least = nullptr;
    const auto key = [&](const Pair& pair) {
      return std::tuple(static_cast<double>(pair.done) / static_cast<double>(pair.all), pair.apart,
                        std::ranges::find(sorted, pair.pushes[pair.next]));
    };
    for (auto& [devices, pair] : pairs) {
      if (pair.next < pair.pushes.size() && (!least || key(pair) < key(*least))) least = &pair;
    }
    if (!least) break;
    order.push_back(least->pushes[least->next++]);
    least->done += plan.duration[order.back()];
  }
  std::size_t next = 0;
  for (TaskId& place : sorted) {
    if (plan.kind[place] == TaskKind::kPush) place = order[next++];
  }
  return sorted;
}

TEST(QueuedRanks, AreThoseOfTheDefinition) {
  const auto problem = lenet();
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kParameterServer, decide::SyncMethod::kAllReduce}) {
    decide::Strategy strategy = replicated(*problem, sync);
    strategy.units[UnitId(0)] = decide::single_decision(DeviceId(1));
    const Plan by_rank = compile(*problem, strategy);
    strategy.order = decide::OrderPolicy::kRankQueued;
    const Plan plan = compile(*problem, strategy);
    EXPECT_EQ(by_urgency(plan), queued_by_definition(plan));
    EXPECT_NE(plan.priority, by_rank.priority);
    EXPECT_EQ(plan.rank, by_rank.rank);
  }
}

TEST(Priorities, OfOpsAreThoseGiven) {
  const auto problem = lenet();
  Rng rng(3);
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kParameterServer, decide::SyncMethod::kAllReduce}) {
    decide::Strategy strategy = replicated(*problem, sync);
    const Plan by_rank = compile(*problem, strategy);
    strategy.order = decide::OrderPolicy::kPriority;
    strategy.priorities = random_priorities(*problem, strategy, rng);
    const Plan plan = compile(*problem, strategy);
    EXPECT_EQ(plan.rank, by_rank.rank);  // a bound, whatever the order
    EXPECT_EQ(plan.kind, by_rank.kind);
    EXPECT_NE(plan.priority, by_rank.priority);

    std::map<std::pair<OpId, std::int64_t>, std::int64_t> given;  // by op and first sample
    const decide::Layout layout = decide::lay_out(*problem, strategy);
    for (const decide::OpPriority& one : strategy.priorities) {
      given[{one.op, layout.op_slices(one.op)[one.instance].begin}] = one.priority;
    }
    std::int64_t last = std::numeric_limits<std::int64_t>::max();
    for (TaskId task : by_urgency(plan)) {
      if (plan.kind[task] != TaskKind::kCompute) continue;
      const std::int64_t own = given.at({plan.op[task], plan.begin[task]});
      EXPECT_LE(own, last);
      last = own;
    }
  }
}

// Of few different ones, as far apart as numbers are.
TEST(Priorities, OfEqualsFollowRanks) {
  const auto problem = lenet();
  Rng rng(5);
  using Limits = std::numeric_limits<std::int64_t>;
  for (const std::int64_t least : {Limits::min() + 1, std::int64_t{-3}}) {
    const std::array<std::int64_t, 4> few = {least, -1, 7, least + (Limits::max() - 3)};
    decide::Strategy strategy = replicated(*problem, decide::SyncMethod::kAllReduce);
    strategy.order = decide::OrderPolicy::kPriority;
    strategy.priorities = random_priorities(*problem, strategy, rng);
    std::map<std::pair<OpId, std::uint32_t>, std::int64_t> given;
    for (decide::OpPriority& one : strategy.priorities) {
      given[{one.op, one.instance}] = one.priority = few[rng.below(few.size())];
    }
    const Plan plan = compile(*problem, strategy);
    std::map<OpId, std::uint32_t> instances;
    std::map<TaskId, std::int64_t> own;
    for (TaskId task : plan.task_ids()) {
      if (plan.kind[task] != TaskKind::kCompute) continue;
      own[task] = given.at({plan.op[task], instances[plan.op[task]]++});
    }
    std::pair<std::int64_t, Nanoseconds> last = {Limits::max(), Limits::max()};
    for (TaskId task : by_urgency(plan)) {
      if (!own.contains(task)) continue;
      const std::pair<std::int64_t, Nanoseconds> here = {own[task], plan.rank[task]};
      EXPECT_LE(here, last);
      last = here;
    }
    // What nobody named comes after all that was.
    for (TaskId task : plan.task_ids()) {
      if (plan.kind[task] != TaskKind::kUpdate) continue;
      for (const auto& [other, priority] : own)
        EXPECT_LT(plan.priority[other], plan.priority[task]);
    }
  }
}

// The first op of two units on different devices: what one sends to the other is as urgent as its
// reader; what is reduced, as its most urgent producer; updates and pulls come last.
TEST(Priorities, OfTasksBetweenAreThoseOfWhomTheyServe) {
  const auto problem = lenet();
  Rng rng(4);
  std::map<TaskKind, int> seen;
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kParameterServer, decide::SyncMethod::kAllReduce}) {
    decide::Strategy strategy = replicated(*problem, sync);
    strategy.units[UnitId(0)] = decide::single_decision(DeviceId(1));
    strategy.order = decide::OrderPolicy::kPriority;
    strategy.priorities = random_priorities(*problem, strategy, rng);
    const Plan plan = compile(*problem, strategy);
    std::map<std::pair<OpId, std::uint32_t>, std::int64_t> given;
    for (const decide::OpPriority& one : strategy.priorities)
      given[{one.op, one.instance}] = one.priority;
    std::map<OpId, std::uint32_t> instances;
    constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::min();
    IdVector<TaskId, std::int64_t> key(plan.task_count(), kLast);
    for (TaskId task : plan.task_ids()) {
      if (plan.kind[task] != TaskKind::kCompute) continue;
      key[task] = given.at({plan.op[task], instances[plan.op[task]]++});
    }
    // Only what touches a computing task directly, which is all that a reader can check by eye.
    IdVector<TaskId, std::vector<TaskId>> before(plan.task_count());
    for (TaskId task : plan.task_ids()) {
      for (TaskId next : plan.successors[task]) before[next].push_back(task);
    }
    const auto urgency_of = [&](const auto& tasks) {
      std::int64_t most = kLast;
      for (TaskId task : tasks) most = std::max(most, key[task]);
      return most;
    };
    const auto all_compute = [&](const auto& tasks) {
      return !tasks.empty() && std::all_of(tasks.begin(), tasks.end(), [&](TaskId task) {
        return plan.kind[task] == TaskKind::kCompute;
      });
    };
    std::vector<std::pair<TaskId, std::int64_t>> expected;
    for (TaskId task : plan.task_ids()) {
      const TaskKind kind = plan.kind[task];
      if (kind == TaskKind::kTransfer && all_compute(plan.successors[task])) {
        expected.emplace_back(task, urgency_of(plan.successors[task]));
      } else if ((kind == TaskKind::kPush || is_collective(kind)) && all_compute(before[task])) {
        expected.emplace_back(task, urgency_of(before[task]));
      } else if (kind == TaskKind::kUpdate || kind == TaskKind::kPull) {
        expected.emplace_back(task, kLast);
      } else {
        continue;
      }
      ++seen[kind];
    }
    for (const auto& [task, urgency] : expected) {
      for (TaskId other : plan.task_ids()) {
        if (plan.kind[other] != TaskKind::kCompute || key[other] == urgency) continue;
        EXPECT_EQ(plan.priority[task]<plan.priority[other], urgency> key[other]);
      }
    }
  }
  for (TaskKind kind : {TaskKind::kTransfer, TaskKind::kPush, TaskKind::kAllReduce,
                        TaskKind::kUpdate, TaskKind::kPull}) {
    EXPECT_GT(seen[kind], 0) << task_kind_name(kind);
  }
}

std::string refusal(const cost::Problem& problem, const decide::Strategy& strategy) {
  try {
    decide::check_strategy(problem, strategy, "s");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Priorities, ThatNameNothingAreRefused) {
  const auto problem = lenet();
  const decide::Strategy plain = replicated(*problem, decide::SyncMethod::kAllReduce);
  decide::Strategy strategy = plain;
  const OpId op = problem->folded->ops.front();
  const std::string name = problem->graph->op(op).name;
  strategy.priorities = {{op, 0, 1}};
  EXPECT_EQ(refusal(*problem, strategy),
            "s: priorities: 1 given, but the order is rank; expected order priority, or none");
  strategy.order = decide::OrderPolicy::kPriority;
  EXPECT_EQ(refusal(*problem, strategy), "accepted");
  strategy.priorities = {};
  EXPECT_EQ(refusal(*problem, strategy),
            "s: order: priority, but no priorities are given; expected those of the ops, a "
            "pattern of micro-batches, or order rank, rank-queued or fifo");
  strategy.priorities = {{op, 3, 1}};
  EXPECT_EQ(refusal(*problem, strategy),
            "s: priorities[0]: instance 3 of op '" + name + "', which has 3");
  strategy.priorities = {{op, 0, 1}, {op, 0, 2}};
  EXPECT_EQ(refusal(*problem, strategy),
            "s: priorities[1]: instance 0 of op '" + name + "' stands twice, expected one entry");
  strategy.priorities = {{OpId(100000), 0, 1}};
  EXPECT_EQ(refusal(*problem, strategy), "s: priorities[0]: op 100000, the graph has " +
                                             std::to_string(problem->graph->op_count()) + " ops");
  // An op in the middle of an update is part of its task.
  const auto clipped =
      decide::toy_problem(graph::read_graph("tests/data/mlp_clipped.json.gz"), 3, 24);
  const OpId inside = clipped->folded->chains.front().ops.front();
  ASSERT_GT(clipped->folded->chains.front().ops.size(), 1u);
  decide::Strategy of_clipped = replicated(*clipped, decide::SyncMethod::kAllReduce);
  of_clipped.order = decide::OrderPolicy::kPriority;
  of_clipped.priorities = {{inside, 0, 1}};
  EXPECT_EQ(refusal(*clipped, of_clipped), "s: priorities[0]: op '" +
                                               clipped->graph->op(inside).name +
                                               "' has no task of its own in the plan");
}

}  // namespace
}  // namespace heterog::compiler
