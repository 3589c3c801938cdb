// What a plan becomes on each device, and which plans become nothing.
#include "runtime/program/program.h"

#include <gtest/gtest.h>

#include "runtime/jobs.h"
#include "runtime/program/lanes.h"

namespace heterog::runtime {
namespace {

// Queues run what the dispatch sequence says, in its order.
TEST(Job, EveryQueueIsARestrictionOfTheDispatchSequence) {
  const std::shared_ptr<const cost::Problem> problem = decide::model_problem("lenet5-tiny", 3, 12);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const decide::Strategy strategy = random_mix(*problem, seed);
    const TestJob test = make_test_job(problem, strategy);
    sim::Simulator simulator;
    const auto& dispatch = simulator.simulate_timeline(test.plan, strategy.order).dispatch;
    IdVector<TaskId, std::size_t> place(test.plan.task_count());
    for (std::size_t i = 0; i < dispatch.size(); ++i) place[dispatch[i]] = i;
    for (const Program& program : test.job.programs) {
      for (const auto& queue : program.queues) {
        for (std::size_t i = 1; i < queue.size(); ++i) {
          EXPECT_LT(place[program.instructions[queue[i - 1]].task],
                    place[program.instructions[queue[i]].task]);
        }
      }
    }
  }
}

std::vector<std::uint32_t> lanes(const cluster::Cluster& cluster, std::size_t device, Way way) {
  return lanes_of_peers(cluster, DeviceId(device), way).raw();
}

TEST(Lanes, PeersThatShareAWireAreOneLaneAndCappedConnectionsOneEach) {
  using Expected = std::vector<std::uint32_t>;
  const auto plain = decide::toy_problem(support::tiny_mlp_graph(), 4, 8);
  const auto capped = decide::toy_problem(support::tiny_mlp_graph(), 4, 8, 0, 3e8);
  for (const Way way : {Way::kTo, Way::kFrom}) {
    EXPECT_EQ(lanes(*plain->cluster, 1, way), (Expected{0, 0, 0, 0}));
    EXPECT_EQ(lanes(*capped->cluster, 1, way), (Expected{0, 0, 1, 2}));
  }
}

// Messages within a machine share the device's wire, and nobody caps them.
TEST(Lanes, PeersOfOneMachineAreTogether) {
  cluster::ClusterBuilder builder("threes");
  builder.set_network({.flow_cap_bytes_per_second = 3e8});
  for (const char* name : {"a", "b"}) {
    cluster::MachineSpec spec = cluster::test_machine(name, 3);
    spec.fabric = {cluster::FabricSpec::Kind::kSwitch, 4e9};
    spec.nic = {1e9, 0};
    builder.add_machine(std::move(spec));
  }
  const cluster::Cluster cluster = std::move(builder).build("threes");
  for (const Way way : {Way::kTo, Way::kFrom}) {
    EXPECT_EQ(lanes(cluster, 1, way), (std::vector<std::uint32_t>{0, 0, 0, 1, 2, 3}));
  }
}

// Statistics of a slice that the step itself goes on with have no value for the whole batch yet.
TEST(Job, RefusesAStepThatReadsNewStatistics) {
  support::GraphMaker maker;
  const TensorId x = maker.input("x", {support::kB, support::n(4)});
  const TensorId mean = maker.buffer("kept", {support::n(4)});
  const TensorId now =
      maker.op("aten.mean.dim", {graph::tensor_value(x), graph::list_value({graph::int_value(0)})},
               {support::n(4)}, {.role = graph::TensorRole::kOutput, .replaces = mean});
  maker.op("aten.add.Tensor", {graph::tensor_value(x), graph::tensor_value(now)},
           {support::kB, support::n(4)});
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(std::move(maker).build(), 2, 8);
  const auto plan =
      compiler::compile(*problem, weighted(*problem, {1, 1}, decide::SyncMethod::kAllReduce), {});
  try {
    make_job(problem, plan, sim::simulate(plan).dispatch, {}, "g.json");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("reads the new value of buffer 'kept'"),
              std::string::npos)
        << error.what();
  }
}

// A dispatch sequence that cannot be is refused before anything starts.
TEST(Job, AWrongDispatchSequenceIsRefused) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(support::tiny_mlp_graph(), 2, 8);
  const auto plan = compiler::compile(*problem, random_mix(*problem, 3), {});
  std::vector<TaskId> dispatch = sim::simulate(plan).dispatch;
  std::vector<TaskId> shuffled(dispatch.rbegin(), dispatch.rend());
  EXPECT_THROW(make_job(problem, plan, shuffled, {}, "plan.json"), Error);
  dispatch.pop_back();
  EXPECT_THROW(make_job(problem, plan, dispatch, {}, "plan.json"), Error);
  dispatch.push_back(dispatch.front());
  EXPECT_THROW(make_job(problem, plan, dispatch, {}, "plan.json"), Error);
}

}  // namespace
}  // namespace heterog::runtime
