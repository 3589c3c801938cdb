// What is known before simulation: against sums by hand, and against walks written another way.
#include "space/summary.h"

#include <gtest/gtest.h>

#include <set>

#include "decide/problems.h"
#include "search/problems.h"
#include "support/wide_cluster.h"

namespace heterog::space {
namespace {

using graph::Phase;
using search::load_test_problem;

// Everything of a group, tensor by tensor and op by op.
GroupSummary slow_summary(const cost::Problem& problem, GroupId group) {
  const graph::ModelGraph& graph = *problem.graph;
  GroupSummary sums;
  sums.seconds_on.assign(problem.cluster->type_count(), 0);
  const auto mine = [&](OpId op) { return problem.grouping.group_of[op] == group; };
  for (OpId op : problem.grouping.members[group]) {
    if (graph.op(op).alias) continue;
    const double seconds = problem.costs.mean_seconds(op);
    sums.ops += 1;
    sums.seconds += seconds;
    sums.forward_seconds += graph.op(op).phase == Phase::kForward ? seconds : 0;
    sums.whole_seconds += problem.splits->sliceable[op] ? 0 : seconds;
    for (DeviceTypeId type : id_range<DeviceTypeId>(sums.seconds_on.size())) {
      sums.seconds_on[type] += to_seconds(problem.costs.duration(op, type, problem.batch));
    }
  }
  for (TensorId tensor : graph.tensor_ids()) {
    const graph::Tensor& info = graph.tensor(tensor);
    const Bytes bytes = graph.bytes(tensor, problem.batch);
    // A parameter's readers, update and group are one colocation set.
    const TensorId parameter = info.role == graph::TensorRole::kOptimizerState ? info.of : tensor;
    if (parameter.valid() && graph.tensor(parameter).role == graph::TensorRole::kParameter &&
        !graph.consumers(parameter).empty() && mine(graph.consumers(parameter)[0])) {
      (parameter == tensor ? sums.parameter_bytes : sums.optimizer_bytes) += bytes;
    }
    if (!info.producer.valid() || !mine(info.producer) || graph.root(tensor) != tensor ||
        graph.op(info.producer).phase != Phase::kForward) {
      continue;
    }
    bool read_later = false;
    for (OpId op : graph.op_ids()) {
      if (graph.op(op).alias || graph.op(op).phase == Phase::kForward) continue;
      for (TensorId input : graph.inputs(op)) read_later |= graph.root(input) == tensor;
    }
    if (read_later) sums.activation_bytes += bytes;
  }
  return sums;
}

TEST(GroupSummaries, AreTheSumsOfTheirOpsAndTensors) {
  for (const char* model : {"vgg19-tiny", "lenet5-tiny", "alexnet-tiny"}) {
    const auto problem = load_test_problem(model, "heterog-8gpu", 24);
    const GroupSummaries groups = summarize_groups(*problem);
    ASSERT_EQ(groups.size(), problem->grouping.count());
    for (GroupId id : id_range<GroupId>(groups.size())) {
      SCOPED_TRACE(std::string(model) + " group " + std::to_string(id.value()));
      const GroupSummary slow = slow_summary(*problem, id);
      EXPECT_EQ(groups[id].ops, slow.ops);
      EXPECT_DOUBLE_EQ(groups[id].seconds, slow.seconds);
      EXPECT_DOUBLE_EQ(groups[id].forward_seconds, slow.forward_seconds);
      EXPECT_DOUBLE_EQ(groups[id].whole_seconds, slow.whole_seconds);
      EXPECT_EQ(groups[id].parameter_bytes, slow.parameter_bytes);
      EXPECT_EQ(groups[id].optimizer_bytes, slow.optimizer_bytes);
      EXPECT_EQ(groups[id].activation_bytes, slow.activation_bytes);
      for (DeviceTypeId type : id_range<DeviceTypeId>(slow.seconds_on.size())) {
        EXPECT_DOUBLE_EQ(groups[id].seconds_on[type], slow.seconds_on[type]);
      }
    }
  }
}

TEST(Summary, OfAModelIsTheSumOfItsGroupsAndTheirEstimatesFollow) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 192);
  const Summary summary(*problem);
  Bytes parameters = 0;
  for (TensorId parameter : problem->graph->parameters()) {
    parameters += problem->graph->bytes(parameter, 192);
  }
  // Plain SGD with momentum: parameters, gradients, and as much of optimizer state.
  EXPECT_EQ(summary.total_state_bytes, 3 * parameters);
  for (GroupId group : id_range<GroupId>(summary.groups.size())) {
    double least = 1e30;
    for (ActionId id : summary.actions.ids()) {
      const ActionEstimate& estimate = summary.estimates.at(group, id);
      const Action& action = summary.actions[id];
      least = std::min(least, estimate.compute_seconds);
      const bool single = action.placement == Placement::kSingle;
      const GroupCommunication& sent = summary.communication[group];
      const double sync = single ? 0
                          : action.sync == decide::SyncMethod::kAllReduce
                              ? sent.all_reduce_seconds
                              : sent.parameter_server_seconds;
      EXPECT_EQ(estimate.sync_seconds, sync);
      if (!single) continue;
      const DeviceTypeId type = problem->cluster->device(action.device).type;
      EXPECT_NEAR(estimate.compute_seconds, summary.groups[group].seconds_on[type], 1e-9);
      EXPECT_DOUBLE_EQ(estimate.state_share,
                       static_cast<double>(summary.groups[group].state_bytes()) /
                           capacity_bytes(*problem, action.device));
    }
    EXPECT_EQ(summary.estimates.least_compute_seconds[group], least);
  }
}

TEST(Summary, LaysTheModelOutOverTheDevices) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 32);
  const Spans spans = Summary(*problem).spans;
  const auto expect_line = [](const auto& line) {
    EXPECT_EQ(line.raw().front()[0], 0.0);
    EXPECT_NEAR(line.raw().back()[1], 1.0, 1e-9);
    for (std::size_t i = 1; i < line.size(); ++i) {
      EXPECT_EQ(line.raw()[i][0], line.raw()[i - 1][1]);
    }
  };
  expect_line(spans.group_memory);
  expect_line(spans.group_time);
  expect_line(spans.device_memory);
  expect_line(spans.device_speed);
}

// Three devices of one kind behind NICs of 1 GB/s: any transfer crosses two of them at once.
TEST(ClusterSummary, SaysWhatTheWiresCarry) {
  const auto problem = decide::model_problem("lenet5-tiny", 3, 12);
  const ClusterSummary cluster = summarize_cluster(*problem);
  for (DeviceId device : problem->cluster->device_ids()) {
    EXPECT_DOUBLE_EQ(cluster.devices[device].seconds_per_byte, 1e-9);
    EXPECT_EQ(cluster.devices[device].model_seconds, cluster.fastest_seconds);
  }
  EXPECT_DOUBLE_EQ(cluster.mean_seconds_per_byte, 1e-9);
  EXPECT_EQ(cluster.fastest_seconds, cluster.slowest_seconds);
}

TEST(Summary, Of1024DevicesHasAnEstimateForEachOfTheirActions) {
  const auto problem = support::wide_problem();
  const Summary summary(*problem);
  ASSERT_EQ(summary.estimates.action_count, 1028u);
  ASSERT_EQ(summary.estimates.values.size(), summary.groups.size() * 1028);
  const GroupId group(0);
  const auto compute = [&](DeviceId device) {
    return summary.estimates.at(group, summary.actions.single(device)).compute_seconds;
  };
  // The first half of the devices are V100, which are faster at convolutions; device 1,023 is like
  // device 512.
  EXPECT_EQ(compute(DeviceId(0)), compute(DeviceId(511)));
  EXPECT_LT(compute(DeviceId(511)), compute(DeviceId(512)));
  EXPECT_EQ(compute(DeviceId(512)), compute(DeviceId(1023)));
  // Two samples each, in place of 2,048.
  const ActionId even = summary.actions.id({.placement = Placement::kEven});
  EXPECT_LT(summary.estimates.at(group, even).compute_seconds, compute(DeviceId(0)));
}

// Over ports of 4 GB/s. Without hosts that serve, each device serves the other: a push and a pull
// of 0.25 ns a byte, half as long where both serve. On the host, both devices push and pull.
TEST(Communication, ParameterServersAreOnHostsWhereAnyServe) {
  for (const bool serves : {false, true}) {
    const auto problem = decide::served_problem(support::tiny_mlp_graph(), 2, {serves}, 12);
    const auto all = static_cast<double>(problem->graph->parameter_elements() * 4);
    double expected = 0;
    for (TensorId parameter : problem->graph->parameters()) {
      const auto bytes = static_cast<double>(problem->graph->bytes(parameter, 12));
      // On its way with all others, and what of it they do not hide.
      expected += bytes * (serves ? 1e-9 + 1e-9 * bytes / all : 0.25e-9 + 0.5e-9 * bytes / all);
    }
    double seconds = 0;
    for (const SyncSeconds& group : summarize_sync(*problem, {DeviceId(0), DeviceId(1)})) {
      seconds += group.parameter_server;
    }
    EXPECT_NEAR(seconds, expected, 1e-15);
  }
}

// Three machines, of two, one and one devices, behind NICs of 1 GB/s; servers take 100 us for a
// message and carry 0.5 GB/s. Four messages cross the wires for a parameter, wherever its server
// is; on the first machine two more stay inside it, at 4 GB/s and free.
TEST(Communication, SoftwareOfServersCostsForEachMessage) {
  cluster::ClusterBuilder builder("served");
  for (const auto& [name, devices] :
       {std::pair<std::string, std::size_t>{"a", 2}, {"b", 1}, {"c", 1}}) {
    cluster::MachineSpec spec = cluster::test_machine(name, devices);
    spec.fabric = {cluster::FabricSpec::Kind::kSwitch, 4e9};
    spec.nic = {1e9, 0};
    builder.add_machine(std::move(spec));
  }
  builder.set_network({0, 0, cluster::ServerTransportSpec{0.5e9, 0, 100e-6}});
  const cluster::Cluster cluster = std::move(builder).build("served");
  const auto ports = server_ports(cluster, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)});
  ASSERT_EQ(ports.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(ports[i].fixed, 400e-6, 1e-12);
    EXPECT_NEAR(ports[i].per_byte, i == 0 ? 8.5e-9 : 8e-9, 1e-15);
  }
  // Bytes are spread over three ports, messages are not.
  const double rate = 1 / 8.5e-9 + 2 / 8e-9;
  EXPECT_NEAR(server_seconds(ports, 1'000'000, 0), 200e-6 + 1e6 / rate, 1e-9);
  // Of half of all bytes, half of the way there and back is waited for.
  EXPECT_NEAR(server_seconds(ports, 1'000'000, 0.5), 200e-6 + 1e6 / rate + 0.5 * (400e-6 + 8e-3),
              1e-9);
  // In one machine each device is a port.
  EXPECT_EQ(server_ports(cluster, {DeviceId(0), DeviceId(1)}).size(), 2u);
}

}  // namespace
}  // namespace heterog::space
