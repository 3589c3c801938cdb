// The simulator against hand-derived schedules and against the reference.
#include "sim/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/bounds.h"
#include "sim/memory.h"
#include "sim/random_plan.h"
#include "sim/reference_simulator.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::PlanBuilder;
using decide::OrderPolicy;

// A plan by hand: two devices, two links, plenty of memory.
class Hand {
 public:
  Hand() : builder_(2, 2) { builder_.plan().batch = 1; }
  TaskId compute(std::size_t device, Nanoseconds duration, std::vector<TaskId> after = {}) {
    return add(device, duration, {builder_.plan().compute_stream(DeviceId(device))}, after);
  }
  TaskId transfer(std::vector<std::size_t> links, Nanoseconds duration,
                  std::vector<TaskId> after = {}) {
    std::vector<ResourceId> resources;
    for (std::size_t link : links) resources.push_back(builder_.plan().link(LinkId(link)));
    return add(0, duration, resources, after);
  }
  BufferId buffer(TaskId task, std::size_t device, Bytes bytes) {
    return builder_.allocate(task, DeviceId(device), bytes, TensorId());
  }
  void read(TaskId task, BufferId buffer) { builder_.read(task, buffer); }
  Plan plan(Bytes capacity = 1000) {
    Plan plan = std::move(builder_).finish();
    plan.static_memory.assign(2, {});
    plan.capacity.assign(2, capacity);
    compiler::set_ranks(plan);
    return plan;
  }

 private:
  TaskId add(std::size_t device, Nanoseconds duration, const std::vector<ResourceId>& resources,
             const std::vector<TaskId>& after) {
    PlanBuilder::Task spec;
    spec.op = OpId(next_op_++);
    spec.device = DeviceId(device);
    spec.end = 1;
    spec.duration = duration;
    const TaskId task = builder_.add_task(spec);
    for (ResourceId resource : resources) builder_.hold(task, {resource, duration});
    for (TaskId before : after) builder_.depend(before, task);
    return task;
  }
  PlanBuilder builder_;
  std::size_t next_op_ = 0;
};

// a(2) and b(3) are ready on one device; a has a tail of 10 behind it, so rank(a) = 12 > rank(b) =
// 3 and a runs first; at 2 the tail (rank 10) starts before b.
TEST(Simulator, HigherRankFirst) {
  Hand hand;
  const TaskId b = hand.compute(0, 3);
  const TaskId a = hand.compute(0, 2);
  const TaskId tail = hand.compute(1, 10, {a});
  const SimResult result = simulate(hand.plan());
  EXPECT_EQ(result.start[a], 0);
  EXPECT_EQ(result.start[tail], 2);
  EXPECT_EQ(result.start[b], 2);
  EXPECT_EQ(result.step, 12);
  EXPECT_THAT(result.dispatch, testing::ElementsAre(a, tail, b));
}

// Device 0 is busy until 5. b becomes ready at 1, a (of higher rank) at 2. Rank order: a at 5, its
// tail at 7, end 17. FIFO: b at 5, a at 8, tail at 10, end 20.
TEST(Simulator, FifoTakesWhatWasReadyFirst) {
  const auto build = [](TaskId* a, TaskId* b) {
    Hand hand;
    hand.compute(0, 5);
    const TaskId x = hand.compute(1, 1);
    const TaskId y = hand.compute(1, 1, {x});
    *b = hand.compute(0, 3, {x});
    *a = hand.compute(0, 2, {y});
    hand.compute(1, 10, {*a});
    return hand.plan();
  };
  TaskId a, b;
  const Plan plan = build(&a, &b);
  const SimResult rank = simulate(plan, OrderPolicy::kRank);
  EXPECT_EQ(rank.start[a], 5);
  EXPECT_EQ(rank.start[b], 7);
  EXPECT_EQ(rank.step, 17);
  const SimResult fifo = simulate(plan, OrderPolicy::kFifo);
  EXPECT_EQ(fifo.start[b], 5);
  EXPECT_EQ(fifo.start[a], 8);
  EXPECT_EQ(fifo.step, 20);
}

// On device 0, a (2) makes `turn` ready, which takes no time, and that makes b (5) ready, of rank
// 15 with a tail of 10 behind it; `put_off` (3, rank 3) is ready all along. It does not slip in
// between: b starts when a ends, at 2, put_off at 7.
TEST(Simulator, NothingSlipsInBeforeWhatATaskOfNoTimeMakesReady) {
  Hand hand;
  const TaskId put_off = hand.compute(0, 3);
  const TaskId a = hand.compute(0, 2);
  const TaskId turn = hand.compute(0, 0, {a});
  const TaskId view = hand.compute(0, 0, {turn});
  const TaskId b = hand.compute(0, 5, {view});
  const TaskId tail = hand.compute(1, 10, {b});
  const Plan plan = hand.plan();
  const SimResult result = simulate(plan);
  EXPECT_EQ(result.start[turn], 2);
  EXPECT_EQ(result.start[view], 2);
  EXPECT_EQ(result.start[b], 2);
  EXPECT_EQ(result.start[put_off], 7);
  EXPECT_EQ(result.start[tail], 7);
  EXPECT_EQ(result.step, 17);
  EXPECT_THAT(result.dispatch, testing::ElementsAre(a, turn, view, b, tail, put_off));
  EXPECT_EQ(reference_simulate(plan, OrderPolicy::kRank).dispatch, result.dispatch);
}

// A transfer over links 0 and 1 (rank 14: 4 and a tail of 10) meets small ones (2 each, rank 2)
// that become ready on link 0 at 0, and on link 1 at 1, at 3 and at 5, one after another: one of
// the links is always busy when the other is free.
TEST(Simulator, ATransferOverSeveralLinksWaitsUntilAllAreFree) {
  Hand hand;
  hand.transfer({0}, 2);
  const TaskId tick = hand.compute(0, 1);
  const TaskId big = hand.transfer({0, 1}, 4, {tick});
  hand.compute(1, 10, {big});
  hand.transfer({1}, 2, {tick});
  const TaskId t1 = hand.compute(0, 1, {tick});
  hand.transfer({0}, 2, {t1});
  const TaskId t3 = hand.compute(0, 1, {t1});
  hand.transfer({1}, 2, {t3});
  // Link 0 [0,2) and [2,4), link 1 [1,3) and [3,5): both free at 5.
  EXPECT_EQ(simulate(hand.plan(), OrderPolicy::kRank).start[big], 5);
}

// A hold that ends before its task frees the resource early (a fast NIC that feeds a slow one).
TEST(Simulator, ShortHoldFreesTheLinkBeforeTheTransferEnds) {
  PlanBuilder builder(1, 2);
  builder.plan().batch = 1;
  PlanBuilder::Task spec;
  spec.device = DeviceId(0);
  spec.end = 1;
  spec.duration = 10;
  spec.op = OpId(0);
  const TaskId first = builder.add_task(spec);
  builder.hold(first, {builder.plan().link(LinkId(0)), 4});
  builder.hold(first, {builder.plan().link(LinkId(1)), 10});
  spec.duration = 3;
  spec.op = OpId(1);
  const TaskId second = builder.add_task(spec);
  builder.hold(second, {builder.plan().link(LinkId(0)), 3});
  Plan plan = std::move(builder).finish();
  plan.static_memory.assign(1, {});
  plan.capacity.assign(1, 1);
  compiler::set_ranks(plan);
  const SimResult result = simulate(plan);
  EXPECT_EQ(result.start[second], 4);
  EXPECT_EQ(result.step, 10);
}

// 60 from 0 to the end of its reader at 5, 50 from 2 on: 110 at [2, 5), of 100.
TEST(Simulator, MemoryIsExplainedWhenItDoesNotFit) {
  Hand hand;
  const TaskId a = hand.compute(0, 2);
  const BufferId x = hand.buffer(a, 0, 60);
  const TaskId b = hand.compute(0, 3, {a});
  hand.buffer(b, 0, 50);
  hand.read(b, x);
  const Plan plan = hand.plan(100);
  const SimResult result = simulate(plan);
  ASSERT_TRUE(result.out_of_memory);
  EXPECT_EQ(result.out_of_memory->device, DeviceId(0));
  EXPECT_EQ(result.out_of_memory->task, b);
  EXPECT_EQ(result.out_of_memory->missing_bytes, 10);
  EXPECT_EQ(result.peak_bytes[DeviceId(0)], 110);
  EXPECT_EQ(result.step, 5);  // the simulation goes on to the end
}

Bytes curve_peak(const std::vector<MemoryPoint>& curve, DeviceId device) {
  Bytes peak = 0;
  for (const MemoryPoint& point : curve) {
    if (point.device == device) peak = std::max(peak, point.bytes);
  }
  return peak;
}

TEST(Simulator, AgreesWithTheReferenceOnRandomPlans) {
  Rng rng(7);
  Simulator simulator;
  for (int i = 0; i < 10000; ++i) {
    const Plan plan = random_plan(rng);
    for (OrderPolicy order : {OrderPolicy::kRank, OrderPolicy::kFifo}) {
      const SimResult slow = reference_simulate(plan, order);
      const SimResult& fast = simulator.simulate_timeline(plan, order);
      ASSERT_EQ(fast.start, slow.start) << "plan " << i;
      ASSERT_EQ(fast.end, slow.end) << "plan " << i;
      ASSERT_EQ(fast.dispatch, slow.dispatch) << "plan " << i;
      ASSERT_EQ(fast.step, slow.step) << "plan " << i;
      ASSERT_EQ(fast.peak_bytes, slow.peak_bytes) << "plan " << i;
      ASSERT_EQ(fast.feasible(), slow.feasible()) << "plan " << i;
      if (!slow.feasible()) {
        ASSERT_EQ(fast.out_of_memory->device, slow.out_of_memory->device);
        ASSERT_EQ(fast.out_of_memory->task, slow.out_of_memory->task);
        ASSERT_EQ(fast.out_of_memory->missing_bytes, slow.out_of_memory->missing_bytes);
      }
      ASSERT_GE(fast.step, bounds(plan).step());
      const SimResult& bare = simulator.simulate(plan, order);
      ASSERT_EQ(bare.step, slow.step) << "plan " << i;
      ASSERT_EQ(bare.peak_bytes, slow.peak_bytes) << "plan " << i;
      ASSERT_EQ(bare.feasible(), slow.feasible()) << "plan " << i;
      if (!slow.feasible()) {
        ASSERT_EQ(bare.out_of_memory->device, slow.out_of_memory->device) << "plan " << i;
        ASSERT_EQ(bare.out_of_memory->task, slow.out_of_memory->task) << "plan " << i;
      }
    }
  }
}

// What is live is never more than the curve says at the end of each moment, and where no task takes
// no time the two peaks are equal.
TEST(MemoryCurve, ReachesThePeakOfTheSimulation) {
  Rng rng(11);
  for (int i = 0; i < 500; ++i) {
    const Plan plan = random_plan(rng);
    const SimResult result = simulate(plan);
    bool instant = false;
    for (TaskId task : plan.task_ids()) instant = instant || plan.duration[task] == 0;
    const auto curve = memory_curve(plan, result);
    for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
      EXPECT_LE(curve_peak(curve, device), result.peak_bytes[device]);
      if (!instant) {
        EXPECT_EQ(curve_peak(curve, device), result.peak_bytes[device]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace heterog::sim
