// Slack: by hand, and on random plans in every order beside delays that are carried on one by one.
#include "sim/slack.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/random_plan.h"

namespace heterog::sim {
namespace {

using compiler::OrderPolicy;
using compiler::Plan;
using compiler::PlanBuilder;

// Two devices and one link:
//   s [0,7) on the link, then c [7,16) on device 1; a [0,5) on device 0, t [7,11) on the link after
//   s, b [16,18) on device 1, which needs t and comes after c.
TEST(Slack, OfAStepByHand) {
  PlanBuilder builder(2, 1);
  builder.plan().batch = 1;
  const auto add = [&](std::size_t device, Nanoseconds duration, ResourceId resource,
                       TaskId after = {}) {
    const TaskId task = builder.add_task(
        {.op = OpId(0), .device = DeviceId(device), .end = 1, .duration = duration});
    builder.hold(task, {resource, duration});
    if (after.valid()) builder.depend(after, task);
    return task;
  };
  const ResourceId link = builder.plan().link(LinkId(0));
  const ResourceId first = builder.plan().compute_stream(DeviceId(0));
  const ResourceId second = builder.plan().compute_stream(DeviceId(1));
  const TaskId s = add(1, 7, link);
  const TaskId a = add(0, 5, first);
  const TaskId t = add(1, 4, link, a);
  const TaskId c = add(1, 9, second, s);
  const TaskId b = add(1, 2, second, t);
  Plan plan = std::move(builder).finish();
  plan.static_memory.assign(2, {});
  plan.capacity.assign(2, 1);
  compiler::set_ranks(plan);
  const SimResult result = simulate(plan);
  ASSERT_EQ(result.step, 18);
  const auto slack = slacks(plan, result);
  EXPECT_EQ(slack[b], 0);
  EXPECT_EQ(slack[c], 0);  // b comes after it on device 1
  EXPECT_EQ(slack[s], 0);
  EXPECT_EQ(slack[t], 16 - 11);
  EXPECT_EQ(slack[a], 16 - 11 + 7 - 5);  // t could wait for it until 12
}

// `after` cannot start before `before` has let it, at this time where nothing is late.
struct Edge {
  TaskId before, after;
  Nanoseconds free = 0;
};

// Every pair of tasks, by dependency and by each resource that both hold.
std::vector<Edge> edges_of(const Plan& plan, const SimResult& result) {
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < result.dispatch.size(); ++i) {
    const TaskId before = result.dispatch[i];
    for (TaskId after : plan.successors[before]) {
      edges.push_back({before, after, result.end[before]});
    }
    for (std::size_t j = i + 1; j < result.dispatch.size(); ++j) {
      const TaskId after = result.dispatch[j];
      for (const compiler::Hold& hold : plan.holds[before]) {
        for (const compiler::Hold& other : plan.holds[after]) {
          if (hold.resource != other.resource) continue;
          edges.push_back({before, after, held_until(plan, result, before, hold)});
        }
      }
    }
  }
  return edges;
}

// The end of the step when one task starts so much later: what is in the way of another moves it,
// until nothing is in anything's way.
Nanoseconds step_with_delay(const Plan& plan, const SimResult& result,
                            const std::vector<Edge>& edges, TaskId late, Nanoseconds delay) {
  IdVector<TaskId, Nanoseconds> by(plan.task_count(), 0);
  by[late] = delay;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Edge& edge : edges) {
      const Nanoseconds missing =
          edge.free + by[edge.before] - (result.start[edge.after] + by[edge.after]);
      if (missing <= 0) continue;
      by[edge.after] += missing;
      moved = true;
    }
  }
  Nanoseconds step = 0;
  for (TaskId task : plan.task_ids()) step = std::max(step, result.end[task] + by[task]);
  return step;
}

TEST(Slack, IsTheLongestDelayThatTheStepDoesNotFeelOnRandomPlans) {
  int without = 0, with = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Plan plan = random_plan(rng);
    for (OrderPolicy order : {OrderPolicy::kRank, OrderPolicy::kRankReserve, OrderPolicy::kFifo}) {
      const SimResult result = simulate(plan, order);
      const auto slack = slacks(plan, result);
      const auto edges = edges_of(plan, result);
      for (TaskId task : plan.task_ids()) {
        ASSERT_GE(slack[task], 0);
        ASSERT_EQ(step_with_delay(plan, result, edges, task, slack[task]), result.step);
        ASSERT_EQ(step_with_delay(plan, result, edges, task, slack[task] + 1), result.step + 1);
        ++(slack[task] > 0 ? with : without);
      }
    }
  }
  EXPECT_GT(without, 1000);
  EXPECT_GT(with, 1000);
}

}  // namespace
}  // namespace heterog::sim
