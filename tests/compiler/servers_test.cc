// Parameter servers on hosts: who is one, what runs and lies there, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "base/file.h"
#include "compiler/check/check_bytes.h"
#include "compiler/check/verify_plan.h"
#include "compiler/compile.h"
#include "compiler/device_id.h"
#include "decide/check_strategy.h"
#include "decide/layout.h"
#include "decide/plan_io.h"
#include "decide/problems.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

decide::Strategy on_all(const cost::Problem& problem, decide::SyncMethod sync) {
  return decide::uniform_strategy(problem, decide::even_decision(problem, sync));
}

// The MLP on machines of two devices: devices 0 to 2n − 1, hosts behind them.
std::unique_ptr<const cost::Problem> mlp(const std::vector<bool>& serves) {
  return decide::served_problem(support::tiny_mlp_graph(), 2, serves, 12);
}

std::map<TaskKind, std::set<DeviceId>> places_of(const Plan& plan) {
  std::map<TaskKind, std::set<DeviceId>> places;
  for (TaskId task : plan.task_ids()) places[plan.kind[task]].insert(plan.device[task]);
  return places;
}

std::string refused_as(const cost::Problem& problem, const decide::Strategy& strategy) {
  try {
    decide::check_strategy(problem, strategy, "p.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

// One machine: both devices push to the host, which adds up, updates, and is pulled from.
TEST(ServersOnHosts, SumAndUpdateAndNothingElse) {
  const auto problem = mlp({true});
  const decide::Strategy strategy = on_all(*problem, decide::SyncMethod::kParameterServer);
  const Plan plan = compile(*problem, strategy);
  verify_plan(plan);
  EXPECT_THAT(check_bytes(*problem, strategy, plan), ElementsAre());
  const auto places = places_of(plan);
  const DeviceId host = d(2);
  EXPECT_THAT(places.at(TaskKind::kCompute), ElementsAre(d(0), d(1)));
  for (TaskKind kind : {TaskKind::kPush, TaskKind::kSum, TaskKind::kUpdate}) {
    EXPECT_THAT(places.at(kind), ElementsAre(host)) << task_kind_name(kind);
  }
  EXPECT_THAT(places.at(TaskKind::kPull), ElementsAre(d(0), d(1)));
  EXPECT_FALSE(places.contains(TaskKind::kTransfer));
  const Bytes parameters = problem->graph->parameter_elements() * 4;
  for (DeviceId place : problem->cluster->place_ids()) {
    EXPECT_EQ(plan.static_memory[place].parameters, parameters);
  }
  EXPECT_EQ(plan.capacity[host], Bytes{1} << 32);
  // Of each pushed gradient it holds one copy a device; nothing of the batch.
  const sim::SimResult result = sim::simulate(plan);
  EXPECT_GT(result.peak_bytes[host], parameters);
  for (BufferId buffer : id_range<BufferId>(plan.buffers.size())) {
    if (plan.buffers[buffer].device != host) continue;
    EXPECT_FALSE(problem->graph->tensor(plan.buffers[buffer].tensor).has_batch);
  }
}

// The host's rate: two addends of 4 bytes read and one written at 0.5 TB/s, and the update as the
// cost table has it for the host's type.
TEST(ServersOnHosts, WorkAtTheHostsRate) {
  const auto problem = mlp({true});
  const Plan plan = compile(*problem, on_all(*problem, decide::SyncMethod::kParameterServer));
  int sums = 0;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kSum) continue;
    const Bytes bytes = problem->graph->bytes(plan.tensor[task], 12);
    EXPECT_EQ(plan.duration[task], to_nanoseconds(static_cast<double>(bytes) * 3 / 5e11));
    ++sums;
  }
  EXPECT_EQ(sums, 4);
}

// Optimizer state lies on the host alone, which saves the devices its memory.
TEST(ServersOnHosts, HoldTheOptimizersState) {
  const auto problem = decide::served_problem(
      graph::read_graph("tests/data/convolutions_adamw.json.gz"), 2, {true}, 12);
  const Plan plan = compile(*problem, on_all(*problem, decide::SyncMethod::kParameterServer));
  EXPECT_EQ(plan.static_memory[d(0)].optimizer_state, 0);
  EXPECT_EQ(plan.static_memory[d(1)].optimizer_state, 0);
  EXPECT_GT(plan.static_memory[d(2)].optimizer_state, 0);
}

// The choice goes to whoever ends first: parameters are spread over the hosts, none is on a device.
TEST(ServersOnHosts, ShareTheParameters) {
  const auto problem = decide::served_problem(graph::read_graph("models/resnet50-tiny.json.gz"), 2,
                                              {true, false, true}, 12);
  const decide::Strategy strategy = on_all(*problem, decide::SyncMethod::kParameterServer);
  const decide::Layout layout = decide::lay_out(*problem, strategy);
  std::map<DeviceId, Bytes> served;
  for (TensorId parameter : problem->graph->parameters()) {
    const decide::ParameterHome& home = layout.home(parameter);
    ASSERT_TRUE(problem->cluster->is_host(home.server));
    EXPECT_EQ(home.hosts, 1u);
    EXPECT_EQ(home.device_count(), 6u);
    EXPECT_EQ(home.replicas.back(), home.server);
    served[home.server] += problem->graph->bytes(parameter, 1);
  }
  ASSERT_EQ(served.size(), 2u);
  const double ratio = static_cast<double>(served[d(6)]) / static_cast<double>(served[d(7)]);
  EXPECT_GT(ratio, 0.5);
  EXPECT_LT(ratio, 2);
  const Plan plan = compile(*problem, strategy);
  verify_plan(plan);
  EXPECT_THAT(check_bytes(*problem, strategy, plan), ElementsAre());
}

// Machines: a with a host that serves, and b. Both devices of a push to their host, one of b for
// both, to whom it also hands what it pulls.
TEST(ServersOnHosts, TalkToEachOtherMachineOnce) {
  const auto problem = mlp({true, false});
  const Plan plan = compile(*problem, on_all(*problem, decide::SyncMethod::kParameterServer));
  std::map<std::pair<std::size_t, std::size_t>, int> pushes, pulls;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kPush) {
      ++pushes[{plan.peer[task].value(), plan.device[task].value()}];
    } else if (plan.kind[task] == TaskKind::kPull) {
      ++pulls[{plan.device[task].value(), plan.peer[task].value()}];
    }
  }
  const std::map<std::pair<std::size_t, std::size_t>, int> expected = {
      {{0, 4}, 4}, {{1, 4}, 4}, {{2, 4}, 4}, {{3, 2}, 4}};
  EXPECT_EQ(pushes, expected);
  EXPECT_EQ(pulls, expected);
}

// What one device alone holds is updated there, and all-reduces need no server.
TEST(ServersOnHosts, AreUsedByParameterServersOfSeveralReplicasAlone) {
  const auto problem = mlp({true});
  for (const decide::Strategy& strategy :
       {on_all(*problem, decide::SyncMethod::kAllReduce),
        decide::uniform_strategy(
            *problem, decide::UnitDecision{{{d(1), 1}}, decide::SyncMethod::kParameterServer})}) {
    const Plan plan = compile(*problem, strategy);
    for (TaskId task : plan.task_ids()) EXPECT_NE(plan.device[task], d(2));
    EXPECT_EQ(plan.static_memory[d(2)].parameters, 0);
  }
}

// A strategy may name a replica, or another host.
TEST(ServersOnHosts, GiveWayToWhatTheStrategyNames) {
  const auto problem = mlp({true, true});
  decide::Strategy strategy = on_all(*problem, decide::SyncMethod::kParameterServer);
  const auto parameters = problem->graph->parameters();
  strategy.sync = {{parameters[0], decide::SyncMethod::kParameterServer, d(1)},
                   {parameters[1], decide::SyncMethod::kParameterServer, d(5)},
                   {parameters[2], decide::SyncMethod::kParameterServer, d(5)},
                   {parameters[3], decide::SyncMethod::kParameterServer, {}}};
  const decide::Layout layout = decide::lay_out(*problem, strategy);
  EXPECT_EQ(layout.home(parameters[0]).server, d(1));
  EXPECT_EQ(layout.home(parameters[0]).hosts, 0u);
  EXPECT_EQ(layout.home(parameters[1]).server, d(5));
  EXPECT_EQ(layout.home(parameters[3]).server, d(4));  // which has less to do
  const Plan plan = compile(*problem, strategy);
  verify_plan(plan);
  EXPECT_THAT(check_bytes(*problem, strategy, plan), ElementsAre());
}

TEST(ServersOnHosts, StandInPlanFiles) {
  const auto problem = mlp({true, true});
  decide::PlanRecord record;
  record.strategy = on_all(*problem, decide::SyncMethod::kParameterServer);
  record.strategy.sync = {
      {problem->graph->parameters()[1], decide::SyncMethod::kParameterServer, d(5)}};
  record.planner = "test";
  record.peak_bytes.assign(problem->cluster->place_count(), 7);
  const std::string path =
      testing::TempDir() + "heterog_servers_" + std::to_string(::getpid()) + ".json";
  decide::write_plan(path, record, *problem);
  const std::string text = read_file(path);
  std::filesystem::remove(path);
  EXPECT_THAT(text, HasSubstr("m1/host"));
  const decide::PlanRecord back = decide::parse_plan(text, path, *problem);
  EXPECT_EQ(back.strategy.sync, record.strategy.sync);
  EXPECT_EQ(back.peak_bytes, record.peak_bytes);
}

TEST(ServersOnHosts, BelongToNoPipeline) {
  const auto problem = mlp({true});
  decide::PlanRecord record{.strategy = on_all(*problem, decide::SyncMethod::kParameterServer),
                            .planner = "test"};
  const std::string path =
      testing::TempDir() + "heterog_turns_" + std::to_string(::getpid()) + ".json";
  record.strategy.micro_batches = 2;
  record.strategy.pipeline_of.assign(2, 0);
  decide::write_plan(path, record, *problem);
  std::string text = read_file(path);
  std::filesystem::remove(path);
  const std::size_t at = text.find("m0/gpu1", text.find("\"pipelines\""));
  ASSERT_NE(at, text.npos);
  text.replace(at, 7, "m0/host");
  try {
    decide::parse_plan(text, "p.json", *problem);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'m0/host' is a host that serves parameters"));
  }
}

TEST(ServersOnHosts, TakeNoSamplesAndServeNoSingleReplica) {
  const auto problem = mlp({true});
  decide::Strategy strategy = on_all(*problem, decide::SyncMethod::kParameterServer);
  strategy.units[UnitId(0)].replicas.push_back({d(2), 1});
  EXPECT_THAT(refused_as(*problem, strategy),
              HasSubstr("units[0]: m0/host is a host that serves parameters and takes no samples"));
  strategy = decide::uniform_strategy(
      *problem, decide::UnitDecision{{{d(1), 1}}, decide::SyncMethod::kParameterServer});
  strategy.sync = {{problem->graph->parameters()[0], decide::SyncMethod::kParameterServer, d(2)}};
  EXPECT_THAT(refused_as(*problem, strategy),
              HasSubstr("server m0/host has no replica of parameter"));
  strategy.sync[0].server = d(3);
  EXPECT_THAT(refused_as(*problem, strategy), HasSubstr("server 3, the cluster has 3 devices and"));
}

}  // namespace
}  // namespace heterog::compiler
