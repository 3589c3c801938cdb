// Heads, tails and the bounds made of them: by hand, and never above what any order takes.
#include "sim/one_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/bounds.h"
#include "sim/random_plan.h"
#include "sim/simulator.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::PlanBuilder;
using decide::OrderPolicy;

// Tasks of one device and one link, each for all of its duration.
class OneLink {
 public:
  TaskId compute(Nanoseconds duration, const std::vector<TaskId>& after = {}) {
    return add(builder_.plan().compute_stream(DeviceId(0)), duration, after);
  }
  TaskId send(Nanoseconds duration, const std::vector<TaskId>& after = {}) {
    return add(builder_.plan().link(LinkId(0)), duration, after);
  }
  Plan finish() {
    Plan plan = std::move(builder_).finish();
    plan.static_memory.assign(1, {});
    plan.capacity.assign(1, 1);
    compiler::set_ranks(plan);
    return plan;
  }

 private:
  TaskId add(ResourceId resource, Nanoseconds duration, const std::vector<TaskId>& after) {
    const TaskId task = builder_.add_task(
        {.op = OpId(count_++), .device = DeviceId(0), .end = 1, .duration = duration});
    builder_.hold(task, {resource, duration});
    for (TaskId before : after) builder_.depend(before, task);
    return task;
  }
  PlanBuilder builder_{1, 1};
  std::size_t count_ = 0;
};

// Three branches of 4 between a task of 1 and one of 1, all on one stream: the longest path says
// that the last starts at 5, the stream that it starts at 13. Its result is sent in 2.
TEST(Windows, CountAllBranchesOnAStream) {
  OneLink step;
  const TaskId first = step.compute(1);
  const TaskId a = step.compute(4, {first}), b = step.compute(4, {first}),
               c = step.compute(4, {first});
  const TaskId last = step.compute(1, {a, b, c});
  const TaskId sent = step.send(2, {last});
  const Window window = windows(step.finish());
  EXPECT_EQ(window.head[a], 1);
  EXPECT_EQ(window.head[last], 13);
  EXPECT_EQ(window.head[sent], 14);
  EXPECT_EQ(window.tail[sent], 0);
  EXPECT_EQ(window.tail[b], 3);
  EXPECT_EQ(window.tail[first], 15);
}

TEST(OneMachine, JacksonByHand) {
  EXPECT_EQ(jackson({}), 0);
  EXPECT_EQ(jackson({{.head = 3, .work = 4, .tail = 5}}), 12);
  // The second interrupts the first at 2: it ends at 5 and is over at 15, the first ends at 9.
  EXPECT_EQ(jackson({{0, 6, 1}, {2, 3, 10}}), 15);
  // Nothing is at hand between 2 and 8.
  EXPECT_EQ(jackson({{0, 2, 0}, {8, 1, 0}}), 9);
}

// The least over all orders without pre-emption is never below; over the subsets S of the jobs, the
// bound is the greatest of least head + work of all + least tail (Carlier).
TEST(OneMachine, JacksonIsTheGreatestOverSubsets) {
  Rng rng(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Job> jobs(1 + rng.below(7));
    for (Job& job : jobs) {
      job = {static_cast<Nanoseconds>(rng.below(15)), static_cast<Nanoseconds>(1 + rng.below(6)),
             static_cast<Nanoseconds>(rng.below(15))};
    }
    Nanoseconds greatest = 0;
    for (std::size_t set = 1; set < std::size_t{1} << jobs.size(); ++set) {
      Nanoseconds head = 1000, work = 0, tail = 1000;
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        if ((set >> i & 1) == 0) continue;
        head = std::min(head, jobs[i].head);
        work += jobs[i].work;
        tail = std::min(tail, jobs[i].tail);
      }
      greatest = std::max(greatest, head + work + tail);
    }
    ASSERT_EQ(jackson(jobs), greatest) << round;
  }
}

// 10 of work for a transfer of 8; beside it 4 for 4 and 3 for 5. Before the transfer or after it,
// the smaller of both is in the way: 10 + 8 + 4 + 3, which the order 3, 10, 4 takes.
TEST(TwoMachines, ByHand) {
  OneLink step;
  const TaskId ten = step.compute(10), four = step.compute(4), three = step.compute(3);
  step.send(8, {ten});
  step.send(4, {four});
  step.send(5, {three});
  Plan plan = step.finish();
  const Window window = windows(plan);
  EXPECT_EQ(one_machine_bound(plan, window), 21);
  EXPECT_EQ(two_machine_bound(plan, window), 25);
  EXPECT_EQ(bounds(plan).step(), 25);
  for (TaskId task : plan.task_ids()) {
    plan.priority[task] = static_cast<std::uint32_t>(task.value() + 6);
  }
  plan.priority[three] = 0;
  plan.priority[ten] = 1;
  EXPECT_EQ(simulate(plan, OrderPolicy::kPriority).step, 25);
}

// A backward pass: a chain on the stream, gradients beside it, and their transfers.
TEST(TwoMachines, AreBelowEveryOrderOfABackwardPass) {
  Rng rng(12);
  int sharper = 0, reached = 0;
  for (int round = 0; round < 500; ++round) {
    OneLink step;
    std::vector<TaskId> before;
    for (std::size_t layer = 2 + rng.below(4); layer > 0; --layer) {
      before = {step.compute(static_cast<Nanoseconds>(1 + rng.below(10)), before)};
      const TaskId gradient = step.compute(static_cast<Nanoseconds>(1 + rng.below(10)), before);
      step.send(static_cast<Nanoseconds>(1 + rng.below(20)), {gradient});
    }
    Plan plan = step.finish();
    const Bounds found = bounds(plan);
    Nanoseconds shortest = simulate(plan, OrderPolicy::kFifo).step;
    for (int draw = 0; draw < 40; ++draw) {
      shuffle_priorities(plan, rng);
      shortest = std::min(shortest, simulate(plan, OrderPolicy::kPriority).step);
      ASSERT_LE(found.step(), shortest) << round;
    }
    sharper +=
        found.two_machines > std::max({found.chain, found.stream, found.link, found.one_machine});
    reached += found.step() == shortest;
  }
  EXPECT_GT(sharper, 20);
  EXPECT_GT(reached, 100);
}

TEST(Bounds, AreBelowEveryOrder) {
  Rng rng(11);
  int one = 0;
  for (int round = 0; round < 3000; ++round) {
    Plan plan = random_plan(rng);
    const Window window = windows(plan);
    const Bounds found = bounds(plan);
    const Nanoseconds loads = std::max({found.chain, found.stream, found.link, found.collectives});
    one += found.one_machine > loads;
    for (OrderPolicy order : {OrderPolicy::kRank, OrderPolicy::kFifo, OrderPolicy::kPriority}) {
      if (order == OrderPolicy::kPriority) shuffle_priorities(plan, rng);
      const SimResult result = simulate(plan, order);
      ASSERT_LE(found.step(), result.step) << round;
      for (TaskId task : plan.task_ids()) {
        ASSERT_LE(window.head[task], result.start[task]) << round;
        ASSERT_LE(window.tail[task], result.step - result.end[task]) << round;
      }
    }
  }
  EXPECT_GT(one, 500);
}

}  // namespace
}  // namespace heterog::sim
