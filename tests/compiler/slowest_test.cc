// Waiting for the slowest of several devices: the expected largest draw, and what it does to a
// plan.
#include "compiler/slowest.h"

#include <gtest/gtest.h>

#include <vector>

#include "cluster/builders.h"
#include "compiler/plan_builder.h"

namespace heterog::compiler {
namespace {

// Tables of order statistics of the normal distribution (Harter 1961): of two 1/√π.
TEST(ExpectedLargest, IsThatOfTheTables) {
  EXPECT_NEAR(expected_largest(1), 0, 1e-9);
  EXPECT_NEAR(expected_largest(2), 0.56419, 1e-5);
  EXPECT_NEAR(expected_largest(3), 0.84628, 1e-5);
  EXPECT_NEAR(expected_largest(8), 1.42360, 1e-5);
  EXPECT_NEAR(expected_largest(100), 2.50759, 1e-5);
  EXPECT_NEAR(expected_largest(1000), 3.24144, 1e-4);
}

// Two devices whose steps deviate by a tenth, and one whose do not: a plan for all three is
// stretched by 0.84628 of that on the first two alone, one for one device not at all.
class WaitForSlowest : public testing::Test {
 protected:
  static Plan made(double deviation, std::vector<DeviceId> computes) {
    cluster::ClusterBuilder builder("test");
    cluster::DeviceType type = cluster::test_type("deviates");
    type.step_deviation = deviation;
    builder.add_machine(cluster::test_machine("a", 2, type));
    builder.add_machine(cluster::test_machine("b", 1, cluster::test_type("even")));
    const cluster::Cluster cluster = std::move(builder).build("test");
    PlanBuilder plan(cluster.device_count(), cluster.link_count());
    for (DeviceId device : computes) {
      const TaskId task = plan.add_task({.op = OpId(0), .device = device, .duration = 1'000'000});
      plan.hold(task, {plan.plan().compute_stream(device), 1'000'000});
    }
    const TaskId push = plan.add_task({.kind = TaskKind::kTransfer,
                                       .op = OpId(0),
                                       .device = DeviceId(1),
                                       .peer = DeviceId(0),
                                       .duration = 500});
    plan.hold(push, {plan.plan().link(LinkId(0)), 500, 1});
    Plan finished = std::move(plan).finish();
    wait_for_slowest(cluster, finished);
    return finished;
  }
  static Nanoseconds held(const Plan& plan, std::size_t task) {
    return plan.holds[TaskId(task)].front().duration;
  }
};

TEST_F(WaitForSlowest, StretchesWhatSeveralDevicesCompute) {
  const Plan plan = made(0.1, {DeviceId(0), DeviceId(1), DeviceId(2)});
  for (std::size_t task : {0, 1}) {
    EXPECT_EQ(plan.duration[TaskId(task)], 1'084'628);
    EXPECT_EQ(held(plan, task), 1'084'628);
  }
  EXPECT_EQ(plan.duration[TaskId(2)], 1'000'000);
  EXPECT_EQ(plan.duration[TaskId(3)], 500);
  EXPECT_EQ(held(plan, 3), 500);
}

// A host that updates beside one device is nobody's slowest, and waits for none.
TEST_F(WaitForSlowest, HostsThatServeDoNotCount) {
  cluster::ClusterBuilder builder("test");
  cluster::MachineSpec spec = cluster::with_server(cluster::test_machine("a", 2));
  for (cluster::DeviceType& type : spec.devices) type.step_deviation = 0.1;
  spec.server->step_deviation = 0.1;
  builder.add_machine(std::move(spec));
  const cluster::Cluster cluster = std::move(builder).build("test");
  for (const std::size_t computing : {1, 2}) {
    PlanBuilder builder_of(cluster.place_count(), cluster.link_count());
    std::vector<DeviceId> places = {DeviceId(2)};  // the host
    for (std::size_t i = 0; i < computing; ++i) places.push_back(DeviceId(i));
    for (DeviceId place : places) {
      const TaskId task = builder_of.add_task(
          {.kind = TaskKind::kUpdate, .op = OpId(0), .device = place, .duration = 1'000'000});
      builder_of.hold(task, {builder_of.plan().compute_stream(place), 1'000'000});
    }
    Plan plan = std::move(builder_of).finish();
    wait_for_slowest(cluster, plan);
    EXPECT_EQ(plan.duration[TaskId(0)], 1'000'000);
    EXPECT_EQ(plan.duration[TaskId(1)], computing == 1 ? 1'000'000 : 1'056'419);
  }
}

TEST_F(WaitForSlowest, OneDeviceWaitsForNobody) {
  EXPECT_EQ(made(0.1, {DeviceId(0), DeviceId(0)}).duration[TaskId(0)], 1'000'000);
  EXPECT_EQ(made(0, {DeviceId(0), DeviceId(1)}).duration[TaskId(0)], 1'000'000);
}

}  // namespace
}  // namespace heterog::compiler
