// What moving bytes takes of the devices that move them themselves.
#include "compiler/emit/overhead.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/compile.h"
#include "decide/problems.h"
#include "sim/check_timeline.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

constexpr double kOverhead = 2e-9;

Plan lenet(decide::SyncMethod sync, double overhead) {
  const auto problem = decide::model_problem("lenet5-tiny", 2, 12, overhead);
  return compile(*problem,
                 decide::uniform_strategy(*problem, decide::even_decision(*problem, sync)));
}

std::vector<TaskId> overheads(const Plan& plan) {
  std::vector<TaskId> found;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kOverhead) found.push_back(task);
  }
  return found;
}

// By collectives, or by transfers of any kind.
Bytes moved(const Plan& plan, bool collectives) {
  Bytes bytes = 0;
  for (TaskId task : plan.task_ids()) {
    const bool collective = is_collective(plan.kind[task]);
    if (is_communication(plan.kind[task]) && collective == collectives) {
      bytes += plan.moved_bytes[task];
    }
  }
  return bytes;
}

Nanoseconds total(const Plan& plan, const std::vector<TaskId>& tasks) {
  Nanoseconds sum = 0;
  for (TaskId task : tasks) sum += plan.duration[task];
  return sum;
}

TEST(Overhead, IsNoneWhereOthersMoveTheBytes) {
  const Plan with = lenet(decide::SyncMethod::kAllReduce, kOverhead);
  const Plan without = lenet(decide::SyncMethod::kAllReduce, 0);
  EXPECT_TRUE(overheads(without).empty());
  EXPECT_EQ(with.task_count(), without.task_count() + overheads(with).size());
}

// Two devices: each sends all bytes once and receives them once.
TEST(Overhead, OfAnAllReduceIsForWhatEachMemberSendsAndReceives) {
  const Plan plan = lenet(decide::SyncMethod::kAllReduce, kOverhead);
  const std::vector<TaskId> tasks = overheads(plan);
  ASSERT_FALSE(tasks.empty());
  EXPECT_EQ(moved(plan, false), 0);
  EXPECT_EQ(total(plan, tasks), 2 * 2 * 2 * moved(plan, true));
  const auto on_first = std::count_if(tasks.begin(), tasks.end(),
                                      [&](TaskId t) { return plan.device[t].value() == 0; });
  EXPECT_EQ(on_first * 2, static_cast<std::ptrdiff_t>(tasks.size()));
}

TEST(Overhead, OfATransferIsForBothItsEnds) {
  const Plan plan = lenet(decide::SyncMethod::kParameterServer, kOverhead);
  ASSERT_GT(moved(plan, false), 0);  // the loss is reduced all the same
  EXPECT_EQ(total(plan, overheads(plan)), 2 * 2 * (moved(plan, false) + 2 * moved(plan, true)));
}

TEST(Overhead, IsDueWithTheMostUrgentOfThoseThatWaitedForTheBytes) {
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kAllReduce, decide::SyncMethod::kParameterServer}) {
    const Plan plan = lenet(sync, kOverhead);
    for (TaskId task : plan.task_ids()) {
      if (!is_communication(plan.kind[task])) continue;
      Nanoseconds most = 0;
      int counted = 0;
      for (TaskId next : plan.successors[task]) {
        most = std::max(
            most, plan.kind[next] == TaskKind::kOverhead ? plan.duration[next] : plan.rank[next]);
      }
      for (TaskId next : plan.successors[task]) {
        if (plan.kind[next] != TaskKind::kOverhead) continue;
        EXPECT_EQ(plan.rank[next], most);
        EXPECT_EQ(plan.predecessors[next], 1u);
        EXPECT_TRUE(plan.successors[next].empty());
        EXPECT_TRUE(plan.allocates[next].empty() && plan.reads[next].empty());
        ++counted;
      }
      EXPECT_EQ(counted, 2);
    }
  }
}

// Where a device always has something to do, its step takes the overhead longer.
TEST(Overhead, LengthensTheComputationThatItInterrupts) {
  for (const decide::OrderPolicy order : {decide::OrderPolicy::kRank, decide::OrderPolicy::kFifo}) {
    const Plan with = lenet(decide::SyncMethod::kAllReduce, 1e-12);
    const Plan heavy = lenet(decide::SyncMethod::kAllReduce, 1e-6);
    const sim::SimResult light = sim::simulate(with, order);
    const sim::SimResult slow = sim::simulate(heavy, order);
    EXPECT_TRUE(sim::check_timeline(heavy, slow, order).empty());
    for (DeviceId device : id_range<DeviceId>(2)) {
      EXPECT_EQ(slow.device_busy[device] - light.device_busy[device],
                (total(heavy, overheads(heavy)) - total(with, overheads(with))) / 2);
    }
    EXPECT_GE(slow.step, slow.device_busy[DeviceId(0)]);
    EXPECT_GT(slow.step, light.step);
  }
}

}  // namespace
}  // namespace heterog::compiler
