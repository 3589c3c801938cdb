// What groups and devices do in a step: by hand, counted nanosecond by nanosecond on random plans,
// and beside what an evaluator says.
#include "oracle/step_profile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "oracle/evaluator.h"
#include "planner/baselines.h"
#include "planner/problems.h"
#include "sim/random_plan.h"

namespace heterog::oracle {
namespace {

using compiler::Plan;
using compiler::PlanBuilder;
using compiler::TaskKind;

// Groups of ops 0, 1, 2, …; members are not asked for.
graph::Grouping grouping_of(std::initializer_list<std::size_t> groups, std::size_t count) {
  graph::Grouping grouping;
  for (const std::size_t group : groups) grouping.group_of.push_back(GroupId(group));
  for (std::size_t group = 0; group < count; ++group) grouping.members.end_row();
  return grouping;
}

// Two devices and two links; the op of each task is its number.
class HandStep {
 public:
  HandStep() : builder_(2, 2) { builder_.plan().batch = 1; }
  ResourceId stream(std::size_t device) const {
    return builder_.plan().compute_stream(DeviceId(device));
  }
  ResourceId link(std::size_t link) const { return builder_.plan().link(LinkId(link)); }
  TaskId add(TaskKind kind, std::size_t device, Nanoseconds duration, ResourceId resource,
             TaskId after = {}) {
    const TaskId task = builder_.add_task({.kind = kind,
                                           .op = OpId(builder_.plan().task_count()),
                                           .device = DeviceId(device),
                                           .end = 1,
                                           .duration = duration});
    builder_.hold(task, {resource, duration});
    if (after.valid()) builder_.depend(after, task);
    return task;
  }
  // A collective of both devices.
  void reduce(Nanoseconds duration, TaskId after) {
    const TaskId task = add(TaskKind::kAllReduce, 0, duration, channel(0), after);
    builder_.hold(task, {channel(1), duration});
    for (std::size_t device : {0, 1}) builder_.participate(task, DeviceId(device));
  }
  Plan plan(Bytes held_by_first, Bytes held_by_second) {
    Plan plan = std::move(builder_).finish();
    plan.static_memory.assign(2, {});
    plan.static_memory[DeviceId(0)].parameters = held_by_first;
    plan.static_memory[DeviceId(1)].parameters = held_by_second;
    plan.capacity.assign(2, 100);
    compiler::set_ranks(plan);
    return plan;
  }

 private:
  ResourceId channel(std::size_t device) const {
    return builder_.plan().collective_channel(DeviceId(device));
  }
  PlanBuilder builder_;
};

// s [0,7) to device 1, c [7,16) there; a [0,5) on device 0, t [7,11) to device 1 under c, b
// [16,18).
TEST(StepProfile, OfAStepByHand) {
  HandStep hand;
  const TaskId s = hand.add(TaskKind::kTransfer, 1, 7, hand.link(0));
  const TaskId a = hand.add(TaskKind::kCompute, 0, 5, hand.stream(0));
  const TaskId t = hand.add(TaskKind::kTransfer, 1, 4, hand.link(0), a);
  hand.add(TaskKind::kCompute, 1, 9, hand.stream(1), s);
  hand.add(TaskKind::kCompute, 1, 2, hand.stream(1), t);
  const Plan plan = hand.plan(50, 120);
  const sim::SimResult result = sim::simulate(plan);
  ASSERT_EQ(result.step, 18);
  // {s, c, b}, {a, t}, and a group that does nothing.
  const StepProfile profile = profile_step(plan, result, grouping_of({0, 1, 1, 0, 0}, 3));
  ASSERT_EQ(profile.groups.size(), 3u);
  const GroupProfile& chain = profile.groups[GroupId(0)];
  EXPECT_DOUBLE_EQ(chain.busy, 11.0 / 18);
  EXPECT_DOUBLE_EQ(chain.slack, 0);
  EXPECT_DOUBLE_EQ(chain.exposed, 7.0 / 18);  // device 1 has nothing to compute before s is there
  const GroupProfile& other = profile.groups[GroupId(1)];
  EXPECT_DOUBLE_EQ(other.busy, 5.0 / 18);
  EXPECT_DOUBLE_EQ(other.slack, 5.0 / 18);  // t's, which b needs at 16; that of a is 7
  EXPECT_DOUBLE_EQ(other.exposed, 0);
  const GroupProfile& none = profile.groups[GroupId(2)];
  EXPECT_DOUBLE_EQ(none.busy, 0);
  EXPECT_DOUBLE_EQ(none.slack, 1);
  EXPECT_DOUBLE_EQ(none.exposed, 0);
  ASSERT_EQ(profile.devices.size(), 2u);
  EXPECT_DOUBLE_EQ(profile.devices[DeviceId(0)].busy, 5.0 / 18);
  EXPECT_DOUBLE_EQ(profile.devices[DeviceId(1)].busy, 11.0 / 18);
  EXPECT_DOUBLE_EQ(profile.devices[DeviceId(0)].memory, 0.5);
  EXPECT_DOUBLE_EQ(profile.devices[DeviceId(1)].memory, 1.2);
}

// x [0,4) and z [4,9) on device 0, y [0,2) on device 1; after x a collective of both, [4,10); u
// [0,5) and v [0,8) to device 1 over two links.
TEST(StepProfile, AllOfACollectiveWaitAndWhatOverlapsCountsOnce) {
  HandStep hand;
  const TaskId x = hand.add(TaskKind::kCompute, 0, 4, hand.stream(0));
  hand.add(TaskKind::kCompute, 0, 5, hand.stream(0), x);
  hand.add(TaskKind::kCompute, 1, 2, hand.stream(1));
  hand.add(TaskKind::kTransfer, 1, 5, hand.link(0));
  hand.add(TaskKind::kTransfer, 1, 8, hand.link(1));
  hand.reduce(6, x);
  const Plan plan = hand.plan(0, 0);
  const sim::SimResult result = sim::simulate(plan);
  ASSERT_EQ(result.step, 10);
  const StepProfile profile = profile_step(plan, result, grouping_of({0, 0, 0, 1, 1, 2}, 3));
  EXPECT_DOUBLE_EQ(profile.groups[GroupId(0)].exposed, 0);
  EXPECT_DOUBLE_EQ(profile.groups[GroupId(1)].exposed, 0.6);  // [2,8)
  // Device 0 has nothing to compute in [9,10), device 1 in all of [4,10).
  EXPECT_DOUBLE_EQ(profile.groups[GroupId(2)].exposed, 0.6);
  EXPECT_DOUBLE_EQ(profile.groups[GroupId(0)].busy, 0.9);  // of device 0; device 1 has 0.2
}

// Whether a task that holds the device's stream runs at a moment.
bool computes_at(const Plan& plan, const sim::SimResult& result, TaskId task, DeviceId device,
                 Nanoseconds now) {
  return std::ranges::any_of(plan.holds[task], [&](const compiler::Hold& hold) {
    return hold.resource == plan.compute_stream(device) && result.start[task] <= now &&
           now < sim::held_until(plan, result, task, hold);
  });
}

bool arrives_at(const Plan& plan, const sim::SimResult& result, TaskId task, DeviceId device,
                Nanoseconds now) {
  if (now < result.start[task] || now >= result.end[task]) return false;
  if (compiler::is_transfer(plan.kind[task])) return plan.device[task] == device;
  return compiler::is_collective(plan.kind[task]) &&
         std::ranges::count(plan.participants[task], device) > 0;
}

TEST(StepProfile, IsWhatCountingMomentsGivesOnRandomPlans) {
  const graph::Grouping grouping = grouping_of({0, 1, 1, 2, 0}, 3);
  int checked = 0, exposed_groups = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Plan plan = sim::random_plan(rng);
    for (TaskId task : plan.task_ids()) {  // random plans say of everything that it computes
      if (!plan.participants[task].empty()) {
        plan.kind[task] = TaskKind::kAllReduce;
      } else if (rng.below(2)) {
        plan.kind[task] = TaskKind::kTransfer;
      }
    }
    const sim::SimResult result = sim::simulate(plan);
    if (result.step == 0 || result.step > 100) continue;
    ++checked;
    const StepProfile profile = profile_step(plan, result, grouping);
    for (GroupId group : id_range<GroupId>(3)) {
      Nanoseconds busy = 0, exposed = 0;
      for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
        Nanoseconds busy_here = 0, exposed_here = 0;
        for (Nanoseconds now = 0; now < result.step; ++now) {
          bool group_computes = false, group_arrives = false, computes = false;
          for (TaskId task : plan.task_ids()) {
            const bool own = grouping.group_of[plan.op[task]] == group;
            const bool here = computes_at(plan, result, task, device, now);
            computes |= here;
            group_computes |= own && here;
            group_arrives |= own && arrives_at(plan, result, task, device, now);
          }
          busy_here += group_computes;
          exposed_here += group_arrives && !computes;
        }
        busy = std::max(busy, busy_here);
        exposed = std::max(exposed, exposed_here);
      }
      const double step = static_cast<double>(result.step);
      ASSERT_DOUBLE_EQ(profile.groups[group].busy, static_cast<double>(busy) / step);
      ASSERT_DOUBLE_EQ(profile.groups[group].exposed, static_cast<double>(exposed) / step);
      exposed_groups += exposed > 0;
    }
  }
  EXPECT_GT(checked, 100);
  EXPECT_GT(exposed_groups, 100);
}

TEST(StepProfile, OfAnEvaluatorIsOfTheStepThatItMeasures) {
  const auto problem = planner::load_test_problem("vgg19-tiny", "heterog-8gpu", 64);
  Evaluator evaluator(*problem);
  for (const auto& [name, strategy] : planner::baseline_strategies(*problem)) {
    SCOPED_TRACE(name);
    const Measured measured = evaluator.measure(strategy);
    const auto profile = evaluator.profile(strategy, problem->grouping);
    ASSERT_TRUE(profile);
    const double step = static_cast<double>(measured.evaluation.step);
    for (DeviceId device : problem->cluster->device_ids()) {
      EXPECT_DOUBLE_EQ(profile->devices[device].busy,
                       static_cast<double>(measured.busy[device]) / step);
      EXPECT_DOUBLE_EQ(profile->devices[device].memory,
                       static_cast<double>(measured.peak_bytes[device]) /
                           static_cast<double>(problem->cluster->device(device).memory_bytes));
    }
    double least = 1;
    for (const GroupProfile& group : profile->groups) {
      EXPECT_GE(group.slack, 0);
      least = std::min(least, group.slack);
      EXPECT_LE(group.busy, 1);
      EXPECT_LE(group.exposed, 1);
    }
    EXPECT_EQ(least, 0);  // something is critical
  }
}

}  // namespace
}  // namespace heterog::oracle
