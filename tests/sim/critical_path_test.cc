// The critical path: by hand, and without a gap on random and real plans in every order.
#include "sim/critical_path.h"

#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "decide/problems.h"
#include "sim/bounds.h"
#include "sim/random_plan.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::PlanBuilder;
using compiler::TaskKind;
using decide::OrderPolicy;
using decide::SyncMethod;

// When a task lets go of a resource.
Nanoseconds released(const Plan& plan, const SimResult& result, TaskId task, ResourceId resource) {
  for (const compiler::Hold& hold : plan.holds[task]) {
    if (hold.resource == resource) return held_until(plan, result, task, hold);
  }
  return -1;
}

// Segments follow one another from 0 to the end, each begins when what it waited for ends, and
// every device's time is accounted for.
void expect_explained(const Plan& plan, OrderPolicy order) {
  SCOPED_TRACE(decide::order_policy_name(order));
  const SimResult result = simulate(plan, order);
  const auto path = critical_path(plan, result, order);
  ASSERT_FALSE(path.empty());
  Nanoseconds at = 0;
  for (const Segment& segment : path) {
    ASSERT_EQ(segment.begin, at);
    ASSERT_EQ(segment.begin, result.start[segment.task]);
    ASSERT_LE(segment.end, result.end[segment.task]);
    at = segment.end;
    switch (segment.cause) {
      case Cause::kNothing:
        ASSERT_EQ(segment.begin, 0);
        break;
      case Cause::kInput:
        ASSERT_EQ(result.end[segment.waited_for], segment.begin);
        break;
      case Cause::kResource:
      case Cause::kOvertake:
        ASSERT_GT(segment.begin, segment.ready);
        ASSERT_EQ(released(plan, result, segment.waited_for, segment.resource), segment.begin);
        break;
    }
  }
  ASSERT_EQ(at, result.step);

  const auto times = device_times(plan, result);
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    const DeviceTime& time = times[device];
    ASSERT_EQ(time.computing, result.device_busy[device]);
    ASSERT_EQ(time.computing + time.moving + time.queued + time.waiting + time.done, result.step);
    Nanoseconds waiting = 0;
    for (Nanoseconds part : time.waiting_for) waiting += part;
    ASSERT_EQ(waiting, time.waiting);
  }

  for (std::size_t most : {1u, 3u, 8u, 1000u}) {
    const auto stretches = fold_path(plan, path, most);
    ASSERT_LE(stretches.size(), most);
    std::size_t next = 0;
    for (const Stretch& stretch : stretches) {
      ASSERT_EQ(stretch.first, next);
      ASSERT_EQ(stretch.begin, path[stretch.first].begin);
      ASSERT_EQ(stretch.end, path[stretch.last - 1].end);
      next = stretch.last;
    }
    ASSERT_EQ(next, path.size());
  }
}

TEST(CriticalPath, HasNoGapOnRandomPlans) {
  int with_waits = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Plan plan = random_plan(rng);
    for (OrderPolicy order : kOrders) {
      expect_explained(plan, order);
      if (testing::Test::HasFatalFailure()) return;
    }
    const SimResult result = simulate(plan);
    for (const Segment& segment : critical_path(plan, result, OrderPolicy::kRank)) {
      if (segment.cause == Cause::kResource) ++with_waits;
    }
  }
  EXPECT_GT(with_waits, 1000);
}

TEST(CriticalPath, HasNoGapOnRealPlansAndBoundsHold) {
  for (const char* model : {"vgg19-tiny", "bert_large24-tiny", "inception_v3-tiny"}) {
    SCOPED_TRACE(model);
    const auto problem = decide::model_problem(model, 3, 12);
    for (SyncMethod sync : {SyncMethod::kParameterServer, SyncMethod::kAllReduce}) {
      const Plan plan = compiler::compile(
          *problem, decide::uniform_strategy(*problem, decide::even_decision(*problem, sync)));
      for (OrderPolicy order : kOrders) {
        expect_explained(plan, order);
        EXPECT_GT(bounds(plan).step(), 0);
        EXPECT_LE(bounds(plan).step(), simulate(plan, order).step);
      }
    }
  }
}

// A plan by hand: two devices and one link, and each task holds one resource.
class HandMadePath {
 public:
  HandMadePath() : builder_(2, 1) { builder_.plan().batch = 1; }
  ResourceId link() const { return builder_.plan().link(LinkId(0)); }
  ResourceId stream(std::size_t device) const {
    return builder_.plan().compute_stream(DeviceId(device));
  }
  TaskId add(TaskKind kind, std::size_t device, Nanoseconds duration, ResourceId resource,
             TaskId after = {}) {
    PlanBuilder::Task spec;
    spec.kind = kind;
    spec.op = OpId(builder_.plan().task_count());
    spec.device = DeviceId(device);
    spec.end = 1;
    spec.duration = duration;
    const TaskId task = builder_.add_task(spec);
    builder_.hold(task, {resource, duration});
    if (after.valid()) builder_.depend(after, task);
    return task;
  }
  Plan plan() {
    Plan plan = std::move(builder_).finish();
    plan.static_memory.assign(2, {});
    plan.capacity.assign(2, 1);
    compiler::set_ranks(plan);
    return plan;
  }

 private:
  PlanBuilder builder_;
};

// Two devices and one link. a(5) on device 0 is moved to device 1 by t(4), which
// finds the link taken until 7 by s(7) of a longer chain; b(2) follows on device 1:
//   s [0,7) on the link, then c(9) on device 1 [7,16); a [0,5), t [7,11), b [16,18).
TEST(CriticalPath, NamesTheResourceAndWhoTookIt) {
  HandMadePath hand;
  const ResourceId link = hand.link();
  const ResourceId stream[] = {hand.stream(0), hand.stream(1)};
  const TaskId s = hand.add(TaskKind::kTransfer, 1, 7, link);
  const TaskId a = hand.add(TaskKind::kCompute, 0, 5, stream[0]);
  const TaskId t = hand.add(TaskKind::kTransfer, 1, 4, link, a);
  const TaskId c = hand.add(TaskKind::kCompute, 1, 9, stream[1], s);
  const TaskId b = hand.add(TaskKind::kCompute, 1, 2, stream[1], t);
  const Plan plan = hand.plan();

  const SimResult result = simulate(plan);
  ASSERT_EQ(result.start[t], 7);
  ASSERT_EQ(result.step, 18);
  // b was ready at 11 and waited for c, of higher rank (9 over 2); c needed s.
  const auto path = critical_path(plan, result, OrderPolicy::kRank);
  ASSERT_EQ(path.size(), 3u);
  EXPECT_EQ(path[0].task, s);
  EXPECT_EQ(path[0].cause, Cause::kNothing);
  EXPECT_EQ(path[1].task, c);
  EXPECT_EQ(path[1].cause, Cause::kInput);
  EXPECT_EQ(path[1].waited_for, s);
  EXPECT_EQ(path[2].task, b);
  EXPECT_EQ(path[2].cause, Cause::kResource);
  EXPECT_EQ(path[2].waited_for, c);
  EXPECT_EQ(path[2].resource, stream[1]);
  EXPECT_EQ(path[2].ready, 11);
  // Device 1 waits for s on its way from 0 to 7; device 0 has nothing left from 5 on.
  const auto times = device_times(plan, result);
  EXPECT_EQ(times[DeviceId(1)].moving, 7);
  EXPECT_EQ(times[DeviceId(1)].computing, 11);
  EXPECT_EQ(times[DeviceId(0)].done, 13);
}

// Without c, device 1 is idle until b starts at 11: of that a is not made until 5, the link is
// taken until 7, and t is on its way until 11.
TEST(DeviceTimes, PartAWaitByWhatItsInputDoes) {
  HandMadePath hand;
  hand.add(TaskKind::kTransfer, 0, 7, hand.link());
  const TaskId a = hand.add(TaskKind::kCompute, 0, 5, hand.stream(0));
  const TaskId t = hand.add(TaskKind::kTransfer, 1, 4, hand.link(), a);
  hand.add(TaskKind::kCompute, 1, 2, hand.stream(1), t);
  const Plan plan = hand.plan();
  const DeviceTime time = device_times(plan, simulate(plan))[DeviceId(1)];
  EXPECT_EQ(time.waiting, 5);
  EXPECT_EQ(time.waiting_for[DeviceId(0)], 5);
  EXPECT_EQ(time.queued, 2);
  EXPECT_EQ(time.moving, 4);
  EXPECT_EQ(time.computing, 2);
  EXPECT_EQ(time.done, 0);
}

}  // namespace
}  // namespace heterog::sim
