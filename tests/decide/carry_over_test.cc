// Plans for other devices: who stands for whom, and every part of a strategy through that map.
#include "decide/carry_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/rng.h"
#include "decide/check_strategy.h"
#include "decide/layout.h"
#include "decide/problems.h"

namespace heterog::decide {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Machines of the devices that are named, a letter each: "ab" has one of type "a", one of type "b".
std::shared_ptr<const cluster::Cluster> cluster_of(
    const std::vector<std::pair<std::string, std::string>>& machines) {
  cluster::ClusterBuilder builder("now");
  for (const auto& [name, types] : machines) {
    cluster::MachineSpec spec = cluster::test_machine(name, 0);
    for (const char type : types) {
      spec.devices.push_back(cluster::test_type(std::string(1, type)));
      spec.devices.back().memory_bytes = 1 << 30;
    }
    builder.add_machine(std::move(spec));
  }
  return std::make_shared<const cluster::Cluster>(std::move(builder).build("now"));
}

// "m/gpu0", … of one machine, in the order of the cluster file.
std::vector<PlannedDevice> planned(const std::string& machine, const std::string& types) {
  std::vector<PlannedDevice> devices;
  for (std::size_t i = 0; i < types.size(); ++i) {
    devices.push_back({machine + "/gpu" + std::to_string(i), std::string(1, types[i])});
  }
  return devices;
}

std::vector<std::string> stand_ins(const std::vector<PlannedDevice>& devices,
                                   const cluster::Cluster& cluster) {
  const DeviceMatch match = match_devices(devices, cluster, "p.json");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    names.push_back((match.gone[DeviceId(i)] ? "gone: " : "") +
                    cluster.device(match.of[DeviceId(i)]).name);
  }
  return names;
}

TEST(CarryOver, DevicesBehindOneThatLeftMoveUp) {
  // b has left; c is gpu1 now.
  EXPECT_THAT(stand_ins(planned("m", "abc"), *cluster_of({{"m", "ac"}})),
              ElementsAre("m/gpu0", "gone: m/gpu0", "m/gpu1"));
  EXPECT_THAT(stand_ins(planned("m", "aaa"), *cluster_of({{"m", "aa"}})),
              ElementsAre("m/gpu0", "m/gpu1", "gone: m/gpu0"));
}

TEST(CarryOver, ADeviceThatHasBecomeAnotherTypeStandsForItself) {
  EXPECT_THAT(stand_ins(planned("m", "aaa"), *cluster_of({{"m", "axa"}})),
              ElementsAre("m/gpu0", "m/gpu1", "m/gpu2"));
}

TEST(CarryOver, WhatIsGoneGoesToTheNearestThatHasLeast) {
  std::vector<PlannedDevice> devices = planned("m", "bb");
  for (const PlannedDevice& other : planned("n", "bbb")) devices.push_back(other);
  // Machine n is gone, and nothing is there of its type.
  const auto now = cluster_of({{"m", "bb"}, {"o", "a"}});
  EXPECT_THAT(stand_ins(devices, *now),
              ElementsAre("m/gpu0", "m/gpu1", "gone: m/gpu0", "gone: m/gpu1", "gone: m/gpu0"));
  const DeviceMatch match = match_devices(devices, *now, "p.json");
  EXPECT_THAT(match.added, ElementsAre(DeviceId(2)));
  EXPECT_FALSE(match.twins[0].valid());
}

TEST(CarryOver, AMachineOfAnotherNameStandsForOneThatIsGone) {
  std::vector<PlannedDevice> devices = planned("m", "aa");
  for (const PlannedDevice& other : planned("n", "bb")) devices.push_back(other);
  // Of three new machines the one that has both b, and no more.
  EXPECT_THAT(stand_ins(devices, *cluster_of({{"o", "b"}, {"p", "bba"}, {"q", "bb"}, {"m", "aa"}})),
              ElementsAre("m/gpu0", "m/gpu1", "q/gpu0", "q/gpu1"));
  // What it lacks is elsewhere, if that is free, or gone.
  EXPECT_THAT(stand_ins(devices, *cluster_of({{"p", "b"}, {"m", "aa"}, {"q", "b"}})),
              ElementsAre("m/gpu0", "m/gpu1", "p/gpu0", "q/gpu0"));
  EXPECT_THAT(stand_ins(devices, *cluster_of({{"p", "b"}, {"m", "aa"}})),
              ElementsAre("m/gpu0", "m/gpu1", "p/gpu0", "gone: p/gpu0"));
  // Every name is new.
  EXPECT_THAT(stand_ins(devices, *cluster_of({{"x", "bb"}, {"y", "aa"}})),
              ElementsAre("y/gpu0", "y/gpu1", "x/gpu0", "x/gpu1"));
}

TEST(CarryOver, RefusesAPlanWhoseDevicesAreAllGone) {
  try {
    match_devices(planned("m", "aaaa"), *cluster_of({{"n", "b"}}), "p.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_STREQ(error.what(),
                 "p.json: none of its 4 devices (m/gpu0, m/gpu1, m/gpu2, …) is in cluster now, by "
                 "name or by type; plan without --from");
  }
}

class File {
 public:
  File()
      : path_((std::filesystem::temp_directory_path() /
               ("heterog_carried_" + std::to_string(::getpid()) + ".json"))
                  .string()) {}
  ~File() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

OtherPlan written(const Strategy& strategy, const cost::Problem& problem) {
  const File file;
  write_plan(file.path(), {.strategy = strategy}, problem);
  return read_other_plan(file.path(), *problem.graph);
}

// Machines m0, m1, … of a device each.
TEST(CarryOver, SharesOfADeviceThatIsGoneGoToTheNearestOrToAll) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  Strategy strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  for (UnitDecision& unit : strategy.units) unit.replicas[1].weight = 2;
  const TensorId first = problem->graph->parameters()[0];
  strategy.sync = {{first, SyncMethod::kParameterServer, DeviceId(2)}};
  strategy.row_weights.assign(3, 1.0);
  strategy.row_weights[DeviceId(2)] = 4;
  strategy.bucket_bytes = 77;
  strategy.order = OrderPolicy::kFifo;
  const OtherPlan plan = written(strategy, *problem);
  const auto fewer = toy_problem(support::tiny_mlp_graph(), 2, 6);
  const DeviceMatch match = match_devices(plan.devices, *fewer->cluster, "p.json");
  EXPECT_EQ(gone_text(plan, *fewer->cluster, match),
            "m2/gpu0 is gone, m0/gpu0 is the nearest left");
  const Strategy nearest = carry_over(plan, match, *fewer, {TakenOver::kByNearest}, "p.json");
  EXPECT_THAT(nearest.units[UnitId(0)].replicas,
              ElementsAre(Replica{DeviceId(0), 2}, Replica{DeviceId(1), 2}));
  const Strategy others = carry_over(plan, match, *fewer, {TakenOver::kByOthers}, "p.json");
  EXPECT_THAT(others.units[UnitId(0)].replicas,
              ElementsAre(Replica{DeviceId(0), 1}, Replica{DeviceId(1), 2}));
  for (const Strategy& carried : {nearest, others}) {
    EXPECT_EQ(carried.sync[0].server, DeviceId(0));  // that stands for the server that was
    EXPECT_THAT(carried.row_weights.raw(), ElementsAre(5, 1));
    EXPECT_EQ(carried.bucket_bytes, 77);
    EXPECT_EQ(carried.order, OrderPolicy::kFifo);
  }
}

TEST(CarryOver, ANewDeviceJoinsItsTwin) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 12);
  Strategy strategy = uniform_strategy(*problem, single_decision(DeviceId(1)));
  strategy.units[UnitId(0)] = even_decision(*problem, SyncMethod::kAllReduce);
  strategy.units[UnitId(0)].replicas[0].weight = 3;
  strategy.micro_batches = 2;
  strategy.pipeline_of.assign(2, 0);
  strategy.pipeline_of[DeviceId(1)] = 1;
  const OtherPlan plan = written(strategy, *problem);
  const auto more = toy_problem(support::tiny_mlp_graph(), 3, 12);
  const DeviceMatch match = match_devices(plan.devices, *more->cluster, "p.json");
  const Strategy as_it_is = carry_over(plan, match, *more, {}, "p.json");
  EXPECT_EQ(as_it_is.units, strategy.units);
  const Strategy joined = carry_over(plan, match, *more, {.twins_join = true}, "p.json");
  EXPECT_THAT(
      joined.units[UnitId(0)].replicas,
      ElementsAre(Replica{DeviceId(0), 3}, Replica{DeviceId(1), 1}, Replica{DeviceId(2), 3}));
  EXPECT_THAT(joined.units[UnitId(1)].replicas, ElementsAre(Replica{DeviceId(1), 1}));
  EXPECT_THAT(joined.pipeline_of.raw(), ElementsAre(0, 1, 0));
  EXPECT_EQ(joined.micro_batches, 2);
}

TEST(CarryOver, AFasterDeviceTakesMore) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 12);
  Strategy strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  strategy.units[UnitId(0)].replicas = {{DeviceId(1), 3}, {DeviceId(0), 1}};
  const OtherPlan plan = written(strategy, *problem);
  const DeviceMatch match = match_devices(plan.devices, *problem->cluster, "p.json");
  const IdVector<DeviceId, double> times(std::vector<double>{1, 0.5});
  const Strategy carried = carry_over(plan, match, *problem, {.times_as_much = times}, "p.json");
  EXPECT_THAT(carried.units[UnitId(0)].replicas,
              ElementsAre(Replica{DeviceId(1), 1.5}, Replica{DeviceId(0), 1}));
  EXPECT_THAT(carried.units[UnitId(1)].replicas,
              ElementsAre(Replica{DeviceId(0), 1}, Replica{DeviceId(1), 0.5}));
}

TEST(CarryOver, MicroBatchesAreNoMoreThanSamples) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 12);
  Strategy strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  strategy.micro_batches = 6;
  strategy.pattern = Pattern::kOneForwardOneBackward;
  strategy.order = OrderPolicy::kPriority;
  const OtherPlan plan = written(strategy, *problem);
  for (const std::int64_t batch : {4, 1}) {
    const auto other = toy_problem(support::tiny_mlp_graph(), 2, batch);
    const DeviceMatch match = match_devices(plan.devices, *other->cluster, "p.json");
    const Strategy carried = carry_over(plan, match, *other, {}, "p.json");
    EXPECT_EQ(carried.micro_batches, batch);
    EXPECT_EQ(carried.pattern, batch == 1 ? Pattern::kNone : strategy.pattern);
  }
}

// A problem of other groups: decisions go with the operators.
TEST(CarryOver, DecisionsFollowTheirOperatorsIntoOtherGroups) {
  const auto problem = model_problem("lenet5-tiny", 2, 12);
  Strategy strategy;
  for (std::size_t u = 0; u < problem->grouping.count(); ++u) {
    strategy.units.push_back(single_decision(DeviceId(u % 2)));
  }
  OtherPlan plan = written(strategy, *problem);
  cost::Problem other = *problem;
  other.grouping = graph::group_ops(*problem->graph, problem->costs.mean_seconds(), 3);
  ASSERT_LT(other.grouping.count(), problem->grouping.count());
  const DeviceMatch match = match_devices(plan.devices, *other.cluster, "p.json");
  const Strategy carried = carry_over(plan, match, other, {}, "p.json");
  for (GroupId group : id_range<GroupId>(other.grouping.count())) {
    double of_first = 0, all = 0;
    for (OpId op : other.grouping.members[group]) {
      const double seconds = problem->costs.mean_seconds(op) + 1e-12;
      all += seconds;
      if (problem->grouping.group_of[op].value() % 2 == 0) of_first += seconds;
    }
    EXPECT_EQ(carried.units[UnitId(group.value())].replicas[0].device,
              DeviceId(of_first >= all - of_first ? 0 : 1));
  }
  plan.decision_of_op.clear();
  EXPECT_THAT([&] { carry_over(plan, match, other, {}, "p.json"); },
              testing::ThrowsMessage<Error>(HasSubstr("has no decision_of_op")));
}

// Whatever a plan says is a strategy of any other cluster that has one of its devices; on its own
// cluster it is the same strategy, but for priorities.
TEST(CarryOver, MakesAStrategyOfWhateverIsLeft) {
  Rng rng(5);
  for (int i = 0; i < 60; ++i) {
    const std::size_t machines = 2 + rng.below(3);
    const auto problem = served_problem(support::tiny_mlp_graph(), 2,
                                        std::vector<bool>(machines, rng.below(2) == 1), 12);
    const auto devices = static_cast<std::uint32_t>(problem->cluster->device_count());
    Strategy strategy;
    for (std::size_t u = 0; u < problem->grouping.count(); ++u) {
      UnitDecision decision = rng.below(2) ? even_decision(*problem, SyncMethod::kParameterServer)
                                           : single_decision(DeviceId(rng.below(devices)));
      decision.replicas[0].weight = 0.5 + rng.uniform();
      strategy.units.push_back(decision);
    }
    const Layout layout = lay_out(*problem, strategy);
    for (TensorId parameter : problem->graph->parameters()) {
      std::vector<DeviceId> held;
      for (DeviceId one : layout.home(parameter).replicas) {
        if (!problem->cluster->is_host(one)) held.push_back(one);
      }
      ParameterSync sync{parameter, SyncMethod::kParameterServer, held.back()};
      if (held.size() > 1 && rng.below(2)) {
        sync = {parameter, SyncMethod::kParameterServer, DeviceId(), {{held[0], 1}, {held[1], 3}}};
      }
      if (rng.below(2)) strategy.sync.push_back(sync);
    }
    const OtherPlan plan = written(strategy, *problem);
    const DeviceMatch same = match_devices(plan.devices, *problem->cluster, "p.json");
    EXPECT_EQ(carry_over(plan, same, *problem, {}, "p.json"), strategy);
    const auto other = served_problem(support::tiny_mlp_graph(), 1 + rng.below(3),
                                      std::vector<bool>(1 + rng.below(4), rng.below(2) == 1), 7);
    const DeviceMatch match = match_devices(plan.devices, *other->cluster, "p.json");
    for (const TakenOver by : {TakenOver::kByNearest, TakenOver::kByOthers}) {
      for (const bool twins : {false, true}) {  // it checks what it makes
        EXPECT_NO_THROW(carry_over(plan, match, *other, {by, twins}, "p.json"));
      }
    }
  }
}

TEST(CarryOver, ReadsOnlyPlansThatSayTheirTypes) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 12);
  const File file;
  write_plan(file.path(), {.strategy = uniform_strategy(*problem, single_decision(DeviceId(1)))},
             *problem);
  const std::string text = read_file(file.path());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    write_file(file.path(), changed);
    try {
      read_other_plan(file.path(), *problem->graph);
    } catch (const Error& error) {
      return std::string(error.what()).substr(file.path().size());
    }
    return std::string("accepted");
  };
  const std::string types = R"(,"types":{"fast":["m0/gpu0","m1/gpu0"]})";
  EXPECT_EQ(refusal(types, ""),
            ": cluster: has no types, by which a plan is carried over to other devices; make it "
            "anew");
  EXPECT_EQ(refusal(types, R"(,"types":{"fast":["m0/gpu0"]})"),
            ": decisions: no device 'm1/gpu0' in cluster.types");
  EXPECT_EQ(refusal(types, R"(,"types":{"fast":["m0/gpu0","m0/gpu0"]})"),
            ": cluster.types.fast[1]: device 'm0/gpu0' stands twice");
}

}  // namespace
}  // namespace heterog::decide
