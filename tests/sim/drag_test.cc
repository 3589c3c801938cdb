// Computation beside collectives and transfers, worked out on paper.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/bounds.h"
#include "sim/check_timeline.h"
#include "sim/one_machine.h"
#include "sim/simulator.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::PlanBuilder;
using compiler::TaskKind;
using decide::OrderPolicy;

// Two devices, the first of which collectives slow by 150 thousandths and transfers by 26. Tasks
// are numbered as they are added, and rank in that order.
struct Made {
  Made() : builder(2, 3) { builder.plan().batch = 1; }
  TaskId compute(std::size_t device, Nanoseconds duration, std::vector<TaskId> after = {}) {
    return add(device, duration, after, false);
  }
  TaskId collective(Nanoseconds duration, std::vector<TaskId> after = {}) {
    const TaskId task = add(0, duration, after, true);
    for (std::size_t device : {0, 1}) builder.participate(task, DeviceId(device));
    return task;
  }
  // On a link of its own.
  TaskId transfer(Nanoseconds duration, std::vector<TaskId> after = {}) {
    PlanBuilder::Task spec;
    spec.kind = TaskKind::kTransfer;
    spec.device = DeviceId(0);
    spec.op = OpId(builder.plan().task_count());
    spec.duration = duration;
    spec.end = 1;
    const TaskId task = builder.add_task(spec);
    builder.hold(task, {builder.plan().link(LinkId(links++)), duration});
    for (std::size_t device : {0, 1}) builder.participate(task, DeviceId(device));
    for (TaskId before : after) builder.depend(before, task);
    return task;
  }
  TaskId add(std::size_t device, Nanoseconds duration, const std::vector<TaskId>& after, bool all) {
    PlanBuilder::Task spec;
    spec.op = OpId(builder.plan().task_count());
    spec.device = DeviceId(device);
    spec.duration = duration;
    spec.end = 1;
    const TaskId task = builder.add_task(spec);
    if (all) {
      for (std::size_t d : {0, 1}) {
        builder.hold(task, {builder.plan().collective_channel(DeviceId(d)), duration});
      }
    } else {
      builder.hold(task, {builder.plan().compute_stream(DeviceId(device)), duration});
    }
    for (TaskId before : after) builder.depend(before, task);
    return task;
  }
  Plan plan() {
    Plan plan = std::move(builder).finish();
    plan.static_memory.assign(2, {});
    plan.capacity.assign(2, 1000);
    plan.drag.push_back({150, 26});
    plan.drag.push_back({0, 0});
    compiler::set_ranks(plan);
    return plan;
  }
  PlanBuilder builder;
  std::size_t links = 0;
};

void expect_ends(const Plan& plan, const std::vector<Nanoseconds>& ends) {
  for (OrderPolicy order : {OrderPolicy::kRank, OrderPolicy::kFifo}) {
    const SimResult result = simulate(plan, order);
    EXPECT_THAT(result.end.raw(), testing::ElementsAreArray(ends));
    EXPECT_EQ(result.step, *std::max_element(ends.begin(), ends.end()));
    EXPECT_THAT(check_timeline(plan, result, order), testing::IsEmpty());
  }
}

// At 200 the collective takes the 800 ns that are left to 920; at 600 it leaves 520 of them, which
// are 452.2 at full pace. The other device loses nothing.
TEST(Drag, StretchesWhatRunsBesideACollective) {
  Made made;
  made.compute(0, 1000);
  const TaskId first = made.compute(1, 200);
  made.compute(1, 1000, {first});
  made.collective(400, {first});
  expect_ends(made.plan(), {600 + 453, 200, 1200, 600});
}

// A collective of 400 takes a stream of 1,000 ns of work 400 · 150 / 1150 = 52 ns, less what
// rounding may give back; a stream that is not slowed, nothing.
TEST(Drag, IsCountedByTheBound) {
  for (std::size_t device : {0, 1}) {
    Made made;
    made.compute(device, 1000);
    made.collective(400);
    const Plan plan = made.plan();
    EXPECT_EQ(slowed_stream_bound(plan, windows(plan)), device == 0 ? 1050 : 1000);
    EXPECT_LE(bounds(plan).step(), simulate(plan, OrderPolicy::kRank).step);
  }
}

// Work that the collective waits for, and work that cannot begin before it ends, is not beside it.
TEST(Drag, OfWhatIsNotBesideIsNotCounted) {
  Made made;
  const TaskId before = made.compute(0, 1000);
  const TaskId collective = made.collective(400, {before});
  made.compute(0, 500, {collective});
  const Plan plan = made.plan();
  EXPECT_EQ(simulate(plan, OrderPolicy::kRank).step, 1900);
  EXPECT_EQ(slowed_stream_bound(plan, windows(plan)), 1900);
}

// 1,000 ns of work for the last collective, of 100, and 40 for another of 200. After the last that
// one is 200 more; before it 40, and 200 · 150 / 1150 = 26 less 2 for rounding that the stream
// falls behind: 1000 + 100 + 40 + 24. Where it takes 60, 40 and 7 less 2. A device that is not
// slowed needs 1000 + 100 + 40.
TEST(Drag, IsCountedBeforeTheLastCollective) {
  for (std::size_t device : {0, 1}) {
    for (Nanoseconds other : {200, 60}) {
      Made made;
      const TaskId work = made.compute(device, 1000);
      const TaskId little = made.compute(device, 40);
      made.collective(100, {work});
      made.collective(other, {little});
      const Plan plan = made.plan();
      const Nanoseconds before = device == 1 ? 40 : 40 + (other == 200 ? 24 : 5);
      EXPECT_EQ(two_machine_bound(plan, windows(plan)), 1100 + std::min(before, other));
      for (OrderPolicy order : {OrderPolicy::kRank, OrderPolicy::kFifo}) {
        EXPECT_LE(bounds(plan).step(), simulate(plan, order).step);
      }
    }
  }
}

// A backward pass whose gradients are reduced beside it, in every order.
TEST(Drag, TheBoundIsBelowEveryOrderOfABackwardPass) {
  Rng rng(14);
  int sharper = 0;
  for (int round = 0; round < 300; ++round) {
    Made made;
    std::vector<TaskId> before;
    for (std::size_t layer = 2 + rng.below(4); layer > 0; --layer) {
      before = {made.compute(0, static_cast<Nanoseconds>(100 + rng.below(1000)), before)};
      const TaskId gradient =
          made.compute(0, static_cast<Nanoseconds>(100 + rng.below(1000)), before);
      made.collective(static_cast<Nanoseconds>(100 + rng.below(2000)), {gradient});
    }
    Plan plan = made.plan();
    const Window window = windows(plan);
    const Nanoseconds bound = two_machine_bound(plan, window);
    for (int draw = 0; draw < 40; ++draw) {
      auto& priority = plan.priority.raw();
      for (std::size_t i = priority.size(); i > 1; --i) {
        std::swap(priority[i - 1], priority[rng.below(i)]);
      }
      ASSERT_LE(bound, simulate(plan, OrderPolicy::kPriority).step) << round;
    }
    plan.drag.clear();
    sharper += bound > two_machine_bound(plan, window);
  }
  EXPECT_GT(sharper, 200);
}

// What begins under a collective takes 1.15 times as long, and what begins after it does not.
TEST(Drag, StretchesWhatBeginsBesideACollective) {
  Made made;
  const TaskId collective = made.collective(400);
  const TaskId a = made.compute(0, 100);
  const TaskId b = made.compute(0, 200, {a});
  made.compute(0, 300, {b, collective});
  expect_ends(made.plan(), {400, 115, 345, 700});
}

// One that ends as the next begins. The first comes at 40, where 60 are left, and makes them 69;
// the pace stays as it is at 86.
TEST(Drag, GoesOnFromOneCollectiveToTheNext) {
  Made made;
  const TaskId before = made.compute(1, 40);
  made.compute(0, 100);
  const TaskId first = made.collective(46, {before});
  made.collective(100, {first});
  expect_ends(made.plan(), {40, 109, 86, 186});
}

// A transfer of 200 beside the first 200 of 1,000 ns: 1,026 at its pace, of which 826 are left,
// which are 805.07 at full pace. Device 1 has no figure and loses nothing.
TEST(Drag, StretchesWhatRunsBesideATransfer) {
  Made made;
  made.compute(0, 1000);
  made.compute(1, 1000);
  made.transfer(200);
  expect_ends(made.plan(), {200 + 806, 1000, 200});
}

// Two transfers from 0 to 100 and a collective from 50 to 150. 500 ns are 526 at 1.052; the 476
// left at 50 are 543.87 at 1.202; at 100 the 494 left are 472.63 at 1.15; at 150 the 423 left are
// 367.8.
TEST(Drag, OfAllThatGoesOnAddsUp) {
  Made made;
  made.compute(0, 500);
  const TaskId before = made.compute(1, 50);
  made.transfer(100);
  made.transfer(100);
  made.collective(100, {before});
  expect_ends(made.plan(), {150 + 368, 50, 100, 100, 150});
}

// All that begins and ends at one moment counts once: a task that starts with a transfer while
// another one ends is rounded once.
TEST(Drag, IsRoundedOnceAMoment) {
  Made made;
  const TaskId first = made.transfer(39);
  made.compute(0, 39, {first});
  made.transfer(50, {first});
  made.transfer(50, {first});
  expect_ends(made.plan(), {39, 39 + 42, 89, 89});  // 39 · 1.052 = 41.03
}

TEST(Drag, ACollectiveThatTakesNoTimeCostsNothing) {
  Made made;
  const TaskId before = made.compute(1, 7);
  made.compute(0, 13);
  made.collective(0, {before});
  expect_ends(made.plan(), {7, 13, 7});
}

// A timeline at full pace is refused, and so is one that lost more than it had to.
TEST(Drag, TheCheckOfTimelinesKnowsThePace) {
  Made made;
  made.compute(0, 1000);
  made.collective(400);
  const Plan plan = made.plan();
  SimResult result = simulate(plan);
  EXPECT_THAT(check_timeline(plan, result, OrderPolicy::kRank), testing::IsEmpty());
  for (Nanoseconds off : {-1, 1}) {
    SimResult wrong = result;
    wrong.end[TaskId(0)] += off;
    wrong.step = wrong.end[TaskId(0)];
    EXPECT_THAT(check_timeline(plan, wrong, OrderPolicy::kRank), testing::Not(testing::IsEmpty()));
  }
}

}  // namespace
}  // namespace heterog::sim
