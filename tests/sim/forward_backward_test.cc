// Schedules that are run backwards give priorities that no order by path or time gives.
#include "sim/forward_backward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/random_plan.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::PlanBuilder;
using decide::OrderPolicy;
using sim::SimResult;
using sim::simulate;

// One stream, one link. `free` (5 on the stream) has nothing after it, `late` (5) sends for 10, and
// both are ready at 0. In the order free, late the step takes 5 + 5 + 10. Backwards, what ended
// last goes first: the transfer takes the last 10, `late` the 5 before; `free`, which ended first,
// has the stream at the very end. So `late` starts first, and the step takes 15.
TEST(ForwardBackward, MovesWhatCanWaitToTheEnd) {
  PlanBuilder builder(1, 1);
  const auto add = [&](ResourceId resource, Nanoseconds duration) {
    const TaskId task =
        builder.add_task({.op = OpId(0), .device = DeviceId(0), .end = 1, .duration = duration});
    builder.hold(task, {resource, duration});
    return task;
  };
  const TaskId free = add(builder.plan().compute_stream(DeviceId(0)), 5);
  const TaskId late = add(builder.plan().compute_stream(DeviceId(0)), 5);
  const TaskId sent = add(builder.plan().link(LinkId(0)), 10);
  builder.depend(late, sent);
  Plan plan = std::move(builder).finish();
  plan.static_memory.assign(1, {});
  plan.capacity.assign(1, 1);
  compiler::set_ranks(plan);
  plan.priority[free] = 0;
  plan.priority[late] = 1;
  const SimResult first = simulate(plan, OrderPolicy::kPriority);
  EXPECT_EQ(first.step, 20);
  ForwardBackward improver(plan);
  const auto start = improver.latest_starts(first);
  EXPECT_EQ(start[late], 0);
  EXPECT_EQ(start[sent], 5);
  EXPECT_EQ(start[free], 10);
}

// Backwards the same tasks run as forwards: on a plan whose tasks hold what they hold to their end,
// latest starts are a schedule: nothing starts before what it waits for has ended, and no resource
// serves two. And mostly they help.
TEST(ForwardBackward, LatestStartsAreASchedule) {
  Rng rng(8);
  int shorter = 0, longer = 0;
  for (int round = 0; round < 1000; ++round) {
    Plan plan = sim::random_plan(rng);
    for (TaskId task : plan.task_ids()) {
      for (compiler::Hold& hold : plan.holds.mutable_row(task)) {
        hold.duration = plan.duration[task];
      }
    }
    const SimResult forward = simulate(plan, OrderPolicy::kFifo);
    ForwardBackward improver(plan);
    const auto start = improver.latest_starts(forward);
    std::vector<std::vector<std::pair<Nanoseconds, Nanoseconds>>> busy(plan.resource_count());
    for (TaskId task : plan.task_ids()) {
      ASSERT_GE(start[task], 0);
      const Nanoseconds end = start[task] + plan.duration[task];
      for (TaskId next : plan.successors[task]) ASSERT_LE(end, start[next]) << round;
      if (plan.duration[task] == 0) continue;
      for (const compiler::Hold& hold : plan.holds[task]) {
        busy[hold.resource.value()].emplace_back(start[task], end);
      }
    }
    for (auto& intervals : busy) {
      std::sort(intervals.begin(), intervals.end());
      for (std::size_t i = 1; i < intervals.size(); ++i) {
        ASSERT_LE(intervals[i - 1].second, intervals[i].first) << round;
      }
    }
    std::vector<TaskId> sorted;
    for (TaskId task : plan.task_ids()) sorted.push_back(task);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](TaskId a, TaskId b) { return start[a] < start[b]; });
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      plan.priority[sorted[i]] = static_cast<std::uint32_t>(i);
    }
    const Nanoseconds step = simulate(plan, OrderPolicy::kPriority).step;
    shorter += step < forward.step;
    longer += step > forward.step;
  }
  EXPECT_GT(shorter, 4 * longer);
  EXPECT_GT(shorter, 100);
}

}  // namespace
}  // namespace heterog::sim
