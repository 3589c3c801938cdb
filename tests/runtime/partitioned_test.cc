// Parameters whose rows several servers have: all devices train as one.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "decide/problems.h"
#include "runtime/check/verify.h"
#include "runtime/jobs.h"
#include "runtime/program/faults.h"
#include "runtime/ranks/training_run.h"

namespace heterog::runtime {
namespace {

using compiler::Encoding;
using compiler::TaskKind;
using decide::Replica;
using decide::SyncMethod;

// The same servers of every parameter.
decide::Strategy served_by(const cost::Problem& problem, decide::Strategy strategy,
                           const std::vector<Replica>& servers) {
  for (TensorId parameter : problem.graph->parameters()) {
    strategy.sync.push_back(
        {.parameter = parameter, .method = SyncMethod::kParameterServer, .servers = servers});
  }
  return strategy;
}

// Samples 2 : 1 : 3.
decide::Strategy on_three(const cost::Problem& problem) {
  return weighted(problem, {2, 1, 3}, SyncMethod::kParameterServer);
}

int parts(const compiler::Plan& plan, TaskKind kind) {
  int count = 0;
  for (TaskId task : plan.task_ids()) {
    count += plan.kind[task] == kind && plan.encoding_of(task) == Encoding::kPart ? 1 : 0;
  }
  return count;
}

struct PartitionedCase {
  const char* graph;
  bool in_parts = true;
  double tolerance = 1e-10;
};

// Adam, AdamW, SGD with momentum; tied tables, of which the gradient's addends come together or
// apart; masters of bfloat16; weights that lie channels last. Clipping wants all of every gradient,
// so its parameters have one server.
class Partitioned : public testing::TestWithParam<PartitionedCase> {};

TEST_P(Partitioned, TrainsAsOneDevice) {
  const auto problem = std::shared_ptr<const cost::Problem>(
      decide::toy_problem(graph::read_graph(GetParam().graph), 3, 17));
  for (const std::vector<Replica>& servers :
       {std::vector<Replica>{{DeviceId(0), 1}, {DeviceId(1), 1}, {DeviceId(2), 1}},
        std::vector<Replica>{{DeviceId(2), 3}, {DeviceId(0), 1}},
        std::vector<Replica>{{DeviceId(1), 1}}}) {
    const TestJob test = make_test_job(problem, served_by(*problem, on_three(*problem), servers));
    EXPECT_EQ(parts(test.plan, TaskKind::kPush) > 0, GetParam().in_parts);
    EXPECT_EQ(parts(test.plan, TaskKind::kPull) > 0, GetParam().in_parts);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 3}).worst_relative(), GetParam().tolerance)
        << servers.size() << " servers";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, Partitioned,
    testing::Values(PartitionedCase{"models/bert_large24-tiny.json.gz"},
                    PartitionedCase{"models/gnmt4-tiny.json.gz"},
                    PartitionedCase{"models/vgg19-tiny.json.gz"},
                    PartitionedCase{"tests/data/transformer_tied.json.gz", false},
                    PartitionedCase{"tests/data/partly_tied.json.gz"},
                    PartitionedCase{"tests/data/convolutions_adamw.json.gz"},
                    PartitionedCase{"tests/data/channels_last.json.gz", true, 1e-9},
                    PartitionedCase{"tests/data/masters_bfloat16.json.gz"},
                    PartitionedCase{"tests/data/mlp_clipped.json.gz", false}));

// A machine's devices are spoken for by one of them; hosts have rows, devices too.
TEST(Partitioned, GoesToHostsAndThroughSpeakers) {
  const auto problem = std::shared_ptr<const cost::Problem>(decide::served_problem(
      graph::read_graph("models/lenet5-tiny.json.gz"), 2, {true, false, true}, 17));
  const auto hosts = problem->cluster->host_ids();
  const std::vector<DeviceId> host(hosts.begin(), hosts.end());
  ASSERT_EQ(host.size(), 2u);
  for (const std::vector<Replica>& servers :
       {std::vector<Replica>{{host[0], 1}, {host[1], 2}},
        std::vector<Replica>{{host[1], 2}, {DeviceId(3), 1}, {DeviceId(0), 3}}}) {
    const decide::Strategy strategy = served_by(
        *problem, weighted(*problem, {2, 1, 3, 1, 2, 2}, SyncMethod::kParameterServer), servers);
    const TestJob test = make_test_job(problem, strategy);
    EXPECT_GT(parts(test.plan, TaskKind::kSum), 0);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 3}).worst_relative(), 1e-10);
    const compiler::StaticMemory &at_host = test.plan.static_memory[host[1]],
                                 &at_device = test.plan.static_memory[DeviceId(1)];
    EXPECT_LT(at_host.parameters, 0.8 * static_cast<double>(at_device.parameters));
    EXPECT_GT(at_host.parameters, 0.2 * static_cast<double>(at_device.parameters));
    IdVector<DeviceId, WorkerOptions> options(test.plan.device_count);
    for (WorkerOptions& one : options) one.count_memory = true;
    TrainingRun run(ranks_in_threads(test.job, test.plan, options), options[DeviceId(0)]);
    EXPECT_EQ(run.step(1).memory[host[1].value()].parameters, at_host.parameters);
  }
}

// Who serves rows keeps the optimizer's state of these; a host, the parameter's too.
TEST(Partitioned, StateIsWhereTheRowsAre) {
  const auto problem = std::shared_ptr<const cost::Problem>(
      decide::toy_problem(graph::read_graph("models/vgg19-tiny.json.gz"), 3, 17));
  const TestJob whole =
      make_test_job(problem, weighted(*problem, {1, 1, 1}, SyncMethod::kAllReduce));
  const TestJob test = make_test_job(
      problem, served_by(*problem, on_three(*problem), {{DeviceId(0), 1}, {DeviceId(2), 3}}));
  const auto state = [](const TestJob& of, std::size_t device) {
    return static_cast<double>(of.plan.static_memory[DeviceId(device)].optimizer_state);
  };
  EXPECT_NEAR(state(test, 0) / state(whole, 0), 0.25, 0.01);
  EXPECT_NEAR(state(test, 2) / state(whole, 2), 0.75, 0.01);
  EXPECT_LT(state(test, 1), 0.01 * state(whole, 1));
}

TEST(PartitionedFaults, AreFound) {
  const auto problem = std::shared_ptr<const cost::Problem>(
      decide::toy_problem(graph::read_graph("models/lenet5-tiny.json.gz"), 3, 17));
  for (Fault fault : {Fault::kSkipPull, Fault::kOldShard, Fault::kWrongRows}) {
    TestJob test = make_test_job(
        problem, served_by(*problem, on_three(*problem), {{DeviceId(0), 1}, {DeviceId(2), 3}}));
    inject(test.job, test.plan, fault);
    EXPECT_GT(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-6)
        << kFaultNames[static_cast<std::size_t>(fault)];
  }
}

}  // namespace
}  // namespace heterog::runtime
