// Compiled plans: resharding, fetching once, aggregation, in-place updates.
#include "compiler/compile.h"
#include "compiler/device_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "compiler/check/verify_plan.h"
#include "decide/problems.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

using graph::float_value;
using graph::tensor_value;
using support::GraphMaker;
using support::kB;
using support::n;

std::vector<TaskId> tasks_of(const Plan& plan, TaskKind kind) {
  std::vector<TaskId> found;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == kind) found.push_back(task);
  }
  return found;
}

Bytes moved(const Plan& plan, TaskKind kind) {
  Bytes bytes = 0;
  for (TaskId task : tasks_of(plan, kind)) bytes += plan.moved_bytes[task];
  return bytes;
}

decide::UnitDecision even(std::size_t devices,
                          decide::SyncMethod sync = decide::SyncMethod::kAllReduce) {
  decide::UnitDecision decision;
  decision.sync = sync;
  for (std::size_t i = 0; i < devices; ++i) decision.replicas.push_back({d(i), 1});
  return decision;
}

// x → a → b, then c reads b too: three pointwise ops, each its own unit.
struct Chain {
  std::unique_ptr<const cost::Problem> problem;
  OpId a, b, c;
};

Chain chain(std::int64_t batch) {
  GraphMaker make;
  const TensorId x = make.input("x", {kB, n(1)});
  const TensorId a = make.op("aten.relu.default", {tensor_value(x)}, {kB, n(1)});
  const TensorId b = make.op("aten.relu.default", {tensor_value(a)}, {kB, n(1)});
  const TensorId c = make.op("aten.neg.default", {tensor_value(a)}, {kB, n(1)});
  Chain result{nullptr, make.maker(a), make.maker(b), make.maker(c)};
  result.problem = decide::toy_problem(std::move(make).build(), 3, batch);
  return result;
}

decide::Strategy by_op(const cost::Problem& problem,
                       const std::map<OpId, decide::UnitDecision>& decisions) {
  decide::Strategy strategy;
  strategy.unit_of_op.assign(problem.graph->op_count(), UnitId());
  for (const auto& [op, decision] : decisions) {
    strategy.unit_of_op[op] = strategy.units.push_back(decision);
  }
  return strategy;
}

// Batch 6 on three devices, then on two: [0,2) [2,4) [4,6) → [0,3) [3,6). Device 0 lacks [2,3),
// which device 1 has; device 1 holds [3,4) and lacks [4,6), which device 2 has. One float a sample.
TEST(Compile, ReshardMovesOnlyWhatIsMissing) {
  const Chain t = chain(6);
  const Plan plan =
      compile(*t.problem, by_op(*t.problem, {{t.a, even(3)}, {t.b, even(2)}, {t.c, even(3)}}));
  const auto transfers = tasks_of(plan, TaskKind::kTransfer);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_EQ(plan.peer[transfers[0]], d(1));
  EXPECT_EQ(plan.device[transfers[0]], d(0));
  EXPECT_EQ(plan.begin[transfers[0]], 2);
  EXPECT_EQ(plan.end[transfers[0]], 3);
  EXPECT_EQ(plan.moved_bytes[transfers[0]], 4);
  EXPECT_EQ(plan.peer[transfers[1]], d(2));
  EXPECT_EQ(plan.device[transfers[1]], d(1));
  EXPECT_EQ(plan.moved_bytes[transfers[1]], 8);
  EXPECT_EQ(tasks_of(plan, TaskKind::kMerge).size(), 2u);
}

TEST(Compile, EqualSlicesOnEqualDevicesCostNothing) {
  const Chain t = chain(6);
  const Plan plan =
      compile(*t.problem, by_op(*t.problem, {{t.a, even(3)}, {t.b, even(3)}, {t.c, even(3)}}));
  EXPECT_EQ(plan.task_count(), 9u);
}

// b and c both run on device 2 and read what device 0 made: it travels once (decision 3).
TEST(Compile, ATensorGoesToADeviceOnce) {
  const Chain t = chain(6);
  const Plan plan = compile(*t.problem, by_op(*t.problem, {{t.a, decide::single_decision(d(0))},
                                                           {t.b, decide::single_decision(d(2))},
                                                           {t.c, decide::single_decision(d(2))}}));
  EXPECT_EQ(tasks_of(plan, TaskKind::kTransfer).size(), 1u);
  EXPECT_EQ(moved(plan, TaskKind::kTransfer), 24);
}

// On three devices every gradient of the 4 parameters is reduced once, and every device updates.
TEST(Compile, AllReduceMovesEveryGradientOnce) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 3, 12);
  const Plan plan = compile(*problem, decide::uniform_strategy(*problem, even(3)));
  const Bytes parameters = problem->graph->parameter_elements() * 4;
  EXPECT_EQ(tasks_of(plan, TaskKind::kAllReduce).size(), 4u);
  EXPECT_EQ(moved(plan, TaskKind::kAllReduce), parameters);
  EXPECT_EQ(tasks_of(plan, TaskKind::kUpdate).size(), 12u);
  EXPECT_TRUE(tasks_of(plan, TaskKind::kPush).empty());
  for (DeviceId device : problem->cluster->device_ids()) {
    EXPECT_EQ(plan.static_memory[device].parameters, parameters);
  }
}

// Each of the 4 gradients is pushed by the two devices that do not serve it, and the new parameter
// pulled by them; only the server updates.
TEST(Compile, ParameterServerPushesUpdatesAndPulls) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 3, 12);
  const Plan plan = compile(
      *problem, decide::uniform_strategy(*problem, even(3, decide::SyncMethod::kParameterServer)));
  const Bytes parameters = problem->graph->parameter_elements() * 4;
  EXPECT_EQ(moved(plan, TaskKind::kPush), 2 * parameters);
  EXPECT_EQ(moved(plan, TaskKind::kPull), 2 * parameters);
  EXPECT_EQ(tasks_of(plan, TaskKind::kUpdate).size(), 4u);
  EXPECT_EQ(tasks_of(plan, TaskKind::kSum).size(), 4u);
  // A pull overwrites the replica's parameter: every compute task there that reads it is before.
  const sim::SimResult result = sim::simulate(plan);
  for (TaskId pull : tasks_of(plan, TaskKind::kPull)) {
    for (TaskId task : tasks_of(plan, TaskKind::kCompute)) {
      if (plan.device[task] != plan.device[pull]) continue;
      for (const graph::Read& read : problem->folded->reads[plan.op[task]]) {
        if (read.base == plan.tensor[pull]) {
          EXPECT_LE(result.end[task], result.start[pull]);
        }
      }
    }
  }
}

// Two machines of three devices. The server's neighbours push and pull for themselves; of the other
// machine one device adds up three gradients, pushes their sum and hands on what it pulls. The turn
// is that of the server's number.
TEST(Compile, AServerTalksToEachOtherMachineOnce) {
  cluster::ClusterBuilder builder("toy");
  for (const char* name : {"a", "b"}) builder.add_machine(cluster::test_machine(name, 3));
  const auto problem =
      cost::make_problem(std::make_shared<const graph::ModelGraph>(support::tiny_mlp_graph()),
                         std::make_shared<const cluster::Cluster>(std::move(builder).build("toy")),
                         cost::ConstantModel(1e-6), 12);
  decide::Strategy strategy =
      decide::uniform_strategy(*problem, even(6, decide::SyncMethod::kParameterServer));
  for (TensorId parameter : problem->graph->parameters()) {
    strategy.sync.push_back({parameter, decide::SyncMethod::kParameterServer, d(1)});
  }
  const Plan plan = compile(*problem, strategy);
  verify_plan(plan);
  const std::size_t parameters = problem->graph->parameters().size();
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> pushes, pulls;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kPush) {
      ++pushes[{plan.peer[task].value(), plan.device[task].value()}];
    } else if (plan.kind[task] == TaskKind::kPull) {
      ++pulls[{plan.device[task].value(), plan.peer[task].value()}];
    }
  }
  // Device 4 speaks for 3 and 5.
  const std::map<std::pair<std::size_t, std::size_t>, std::size_t> expected = {
      {{0, 1}, parameters},
      {{2, 1}, parameters},
      {{3, 4}, parameters},
      {{4, 1}, parameters},
      {{5, 4}, parameters}};
  EXPECT_EQ(pushes, expected);
  EXPECT_EQ(pulls, expected);
  std::map<std::size_t, std::size_t> sums;
  for (TaskId task : tasks_of(plan, TaskKind::kSum)) {
    ++sums[plan.device[task].value()];
    EXPECT_EQ(plan.contributions_to(task).size(), plan.device[task] == d(1) ? 4u : 3u);
  }
  EXPECT_EQ(sums, (std::map<std::size_t, std::size_t>{{1, parameters}, {4, parameters}}));
}

// The software of the servers carries 0.5 B/ns where the NICs carry 2, and takes 40 ns where they
// take 6, during which it does nothing else: between machines alone.
TEST(Compile, ServersHaveATransportOfTheirOwn) {
  cluster::ClusterBuilder builder("toy");
  for (const char* name : {"a", "b"}) {
    cluster::MachineSpec spec = cluster::test_machine(name, 2);
    spec.fabric.port_bytes_per_second = 4e9;
    spec.nic = {2e9, 3e-9};
    builder.add_machine(std::move(spec));
  }
  builder.set_network({0, 0, cluster::ServerTransportSpec{0.5e9, 15e-9, 10e-9}});
  const auto problem =
      cost::make_problem(std::make_shared<const graph::ModelGraph>(support::tiny_mlp_graph()),
                         std::make_shared<const cluster::Cluster>(std::move(builder).build("toy")),
                         cost::ConstantModel(1e-6), 12);
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kParameterServer, decide::SyncMethod::kAllReduce}) {
    const Plan plan = compile(*problem, decide::uniform_strategy(*problem, even(4, sync)));
    for (TaskId task : plan.task_ids()) {
      if (!is_transfer(plan.kind[task])) continue;
      const bool inside = problem->cluster->same_machine(plan.device[task], plan.peer[task]);
      const auto bytes = plan.moved_bytes[task];
      ASSERT_EQ(sync, decide::SyncMethod::kParameterServer);
      EXPECT_EQ(plan.duration[task], inside ? bytes / 4 + 1 : 2 * bytes + 40);
      for (const Hold& hold : plan.holds[task]) {
        EXPECT_EQ(hold.duration, inside ? bytes / 4 : 2 * bytes + 40);
        EXPECT_EQ(hold.bytes, bytes);
      }
    }
  }
}

// Two machines of two GPUs with 40 and 20 multiprocessors, whose cards take 2 of them: between
// machines both ends of a transfer are slowed, by 2 of the 38 or 18 that are left; inside a machine
// nobody is, nor by servers with software of their own, nor is a host.
TEST(Compile, TransfersBetweenMachinesTakeMultiprocessors) {
  const auto compiled = [](bool own_software, bool to_host) {
    cluster::ClusterBuilder builder("toy");
    for (const char* name : {"a", "b"}) {
      cluster::MachineSpec spec = cluster::test_machine(name, 2);
      for (cluster::DeviceType& type : spec.devices) {
        type.name = name;
        type.multiprocessors = *name == 'a' ? 40 : 20;
      }
      if (to_host) {
        spec.server = spec.devices.front();
        spec.server->name += "-host";
        spec.host_memory_bytes = Bytes{1} << 34;
      }
      spec.nic.transfer_multiprocessors = 2;
      builder.add_machine(std::move(spec));
    }
    cluster::NetworkSpec network;
    if (own_software) network.servers = cluster::ServerTransportSpec{1e9, 0, 0};
    builder.set_network(network);
    const auto problem = cost::make_problem(
        std::make_shared<const graph::ModelGraph>(support::tiny_mlp_graph()),
        std::make_shared<const cluster::Cluster>(std::move(builder).build("toy")),
        cost::ConstantModel(1e-6), 12);
    decide::UnitDecision decision = even(4, decide::SyncMethod::kParameterServer);
    Plan plan = compile(*problem, decide::uniform_strategy(*problem, decision));
    verify_plan(plan);
    std::size_t slowed = 0;
    for (TaskId task : plan.task_ids()) {
      if (!is_transfer(plan.kind[task])) continue;
      const bool inside = problem->cluster->same_machine(plan.device[task], plan.peer[task]);
      EXPECT_EQ(plan.participants[task].empty(), inside || own_software || to_host);
      slowed += !plan.participants[task].empty();
    }
    EXPECT_EQ(slowed > 0, !own_software && !to_host);
    return plan;
  };
  const Plan plan = compiled(false, false);
  EXPECT_EQ(plan.drag[d(0)].transfer, 53);   // 2 / 38
  EXPECT_EQ(plan.drag[d(3)].transfer, 111);  // 2 / 18
  compiled(true, false);
  EXPECT_EQ(compiled(false, true).drag[d(4)].transfer, 0);
}

TEST(Compile, OneDeviceNeedsNoCommunication) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 3, 12);
  const Plan plan =
      compile(*problem, decide::uniform_strategy(*problem, decide::single_decision(d(1))));
  for (TaskId task : plan.task_ids()) {
    EXPECT_FALSE(is_communication(plan.kind[task]));
    EXPECT_EQ(plan.device[task], d(1));
  }
  EXPECT_EQ(plan.static_memory[d(0)].parameters, 0);
}

// All gradients of the MLP fit one bucket: one collective of all bytes.
TEST(Compile, BucketsShareACollective) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 3, 12);
  decide::Strategy strategy = decide::uniform_strategy(*problem, even(3));
  strategy.bucket_bytes = 1 << 20;
  const Plan plan = compile(*problem, strategy);
  EXPECT_EQ(tasks_of(plan, TaskKind::kAllReduce).size(), 1u);
  EXPECT_EQ(moved(plan, TaskKind::kAllReduce), problem->graph->parameter_elements() * 4);
}

TEST(Compile, SerialCollectivesShareOneResource) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 3, 12);
  const Plan plan = compile(*problem, decide::uniform_strategy(*problem, even(3)),
                            {.collectives = CompileOptions::Collectives::kSerial});
  for (TaskId task : tasks_of(plan, TaskKind::kAllReduce)) {
    const auto holds = plan.holds[task];
    EXPECT_TRUE(std::any_of(holds.begin(), holds.end(), [&](const Hold& hold) {
      return hold.resource == plan.all_collectives();
    }));
  }
}

// Random decisions on real graphs: plans verify themselves (checks are on in this build), are
// simulated to the end, and come out the same twice.
TEST(Compile, RandomStrategiesOnRealGraphs) {
  Rng rng(5);
  for (const char* name : {"lenet5-tiny", "bert_large24-tiny", "resnet50-tiny", "gnmt4-tiny",
                           "xlnet_large24-tiny", "mobilenet_v2-tiny"}) {
    const auto problem = decide::model_problem(name, 4, 10);
    for (int i = 0; i < 12; ++i) {
      decide::Strategy strategy;
      for (std::size_t u = 0; u < problem->grouping.count(); ++u) {
        decide::UnitDecision decision;
        decision.sync =
            rng.below(2) ? decide::SyncMethod::kAllReduce : decide::SyncMethod::kParameterServer;
        for (std::size_t device = 0; device < 4; ++device) {
          if (rng.below(2)) decision.replicas.push_back({d(device), 1.0 + rng.below(3)});
        }
        if (decision.replicas.empty()) decision.replicas.push_back({d(rng.below(4)), 1});
        strategy.units.push_back(decision);
      }
      strategy.bucket_bytes = rng.below(2) ? 0 : 4096;
      const Plan plan = compile(*problem, strategy);
      verify_plan(plan);
      const Plan again = compile(*problem, strategy);
      EXPECT_EQ(plan.priority, again.priority);
      EXPECT_EQ(plan.duration, again.duration);
      EXPECT_EQ(sim::simulate(plan).dispatch, sim::simulate(again).dispatch);
    }
  }
}

}  // namespace
}  // namespace heterog::compiler
