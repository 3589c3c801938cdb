// The checker accepts what the simulator makes, and finds what is changed in it.
#include "sim/check_timeline.h"

#include <gtest/gtest.h>

#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/random_plan.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using decide::OrderPolicy;

TEST(CheckTimeline, AcceptsEverySimulatedStep) {
  Rng rng(11);
  for (int round = 0; round < 10000; ++round) {
    const Plan plan = random_plan(rng);
    for (OrderPolicy order : kOrders) {
      const auto wrong = check_timeline(plan, simulate(plan, order), order);
      ASSERT_TRUE(wrong.empty()) << "round " << round << ", " << decide::order_policy_name(order)
                                 << ": " << wrong[0];
    }
  }
}

// Changes that break a rule whatever the plan.
TEST(CheckTimeline, FindsWhatIsChanged) {
  Rng rng(12);
  int checked = 0;
  for (int round = 0; round < 300; ++round) {
    const Plan plan = random_plan(rng);
    if (plan.task_count() == 0) continue;
    for (OrderPolicy order : kOrders) {
      const SimResult good = simulate(plan, order);
      const auto expect_found = [&](const char* what, auto change) {
        SimResult bad = good;
        change(bad);
        EXPECT_FALSE(check_timeline(plan, bad, order).empty()) << what << " in round " << round;
        ++checked;
      };
      const TaskId task(rng.below(plan.task_count()));
      expect_found("a task ends late", [&](SimResult& r) { ++r.end[task]; });
      expect_found("the step is longer", [](SimResult& r) { ++r.step; });
      expect_found("a device is busier", [](SimResult& r) { ++r.device_busy[DeviceId(0)]; });
      expect_found("a dispatch is lost", [](SimResult& r) { r.dispatch.pop_back(); });
      expect_found("a peak is below what stays",
                   [](SimResult& r) { r.peak_bytes[DeviceId(0)] = -1; });
      if (plan.link_count > 0) {
        expect_found("a link moves more", [](SimResult& r) { ++r.link_bytes[LinkId(0)]; });
      }
      if (plan.predecessors[task] > 0) {
        expect_found("a task starts before its inputs", [&](SimResult& r) {
          const Nanoseconds early = r.start[task] + 1;
          r.start[task] -= early;
          r.end[task] -= early;
        });
      }
    }
  }
  EXPECT_GT(checked, 3000);
}

// A result of another order is a legal schedule of its own order alone, on most plans.
TEST(CheckTimeline, TellsOrdersApart) {
  Rng rng(13);
  int told = 0, different = 0;
  for (int round = 0; round < 500; ++round) {
    const Plan plan = random_plan(rng);
    const SimResult rank = simulate(plan, OrderPolicy::kRank);
    const SimResult fifo = simulate(plan, OrderPolicy::kFifo);
    if (rank.start.raw() == fifo.start.raw()) continue;
    ++different;
    told += !check_timeline(plan, fifo, OrderPolicy::kRank).empty();
  }
  EXPECT_GT(different, 50);
  EXPECT_GT(told, different / 2);
}

// One stream: a task without duration makes b (5) ready at 0, and c (3), of lower rank, starts
// between the two.
TEST(CheckTimeline, FindsWhatSlipsInBehindATaskWithoutDuration) {
  compiler::PlanBuilder builder(1, 0);
  builder.plan().batch = 1;
  const auto add = [&](std::size_t op, Nanoseconds duration, TaskId after) {
    compiler::PlanBuilder::Task spec;
    spec.op = OpId(op);
    spec.device = DeviceId(0);
    spec.end = 1;
    spec.duration = duration;
    const TaskId task = builder.add_task(spec);
    builder.hold(task, {ResourceId(0), duration});
    if (after.valid()) builder.depend(after, task);
    return task;
  };
  const TaskId instant = add(0, 0, {}), b = add(1, 5, instant), c = add(2, 3, {});
  Plan plan = std::move(builder).finish();
  plan.static_memory.assign(1, {});
  plan.capacity.assign(1, 1);
  compiler::set_ranks(plan);
  SimResult result = simulate(plan);
  EXPECT_EQ(result.dispatch, (std::vector{instant, b, c}));
  EXPECT_TRUE(check_timeline(plan, result, OrderPolicy::kRank).empty());
  result.dispatch = {instant, c, b};
  result.start[c] = 0;
  result.end[c] = result.start[b] = 3;
  result.end[b] = 8;
  const auto wrong = check_timeline(plan, result, OrderPolicy::kRank);
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_EQ(wrong[0], "task 1 is ready at 0 and overtaken by task 2 of lower priority");
}

// A whole schedule moved later by a moment: everything waits in vain at first.
TEST(CheckTimeline, FindsIdleTime) {
  Rng rng(14);
  for (int round = 0; round < 100; ++round) {
    const Plan plan = random_plan(rng);
    if (plan.task_count() == 0) continue;
    SimResult late = simulate(plan, OrderPolicy::kRank);
    for (TaskId task : plan.task_ids()) {
      ++late.start[task];
      ++late.end[task];
    }
    ++late.step;
    EXPECT_FALSE(check_timeline(plan, late, OrderPolicy::kRank).empty()) << round;
  }
}

}  // namespace
}  // namespace heterog::sim
