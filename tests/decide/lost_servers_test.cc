// Entries of sync behind changed decisions.
#include "decide/lost_servers.h"

#include <gtest/gtest.h>

#include <vector>

#include "decide/check_strategy.h"
#include "decide/problems.h"

namespace heterog::decide {
namespace {

class LostServers : public testing::Test {
 protected:
  // Data parallelism on so many of three devices.
  Strategy on(std::size_t devices) const {
    UnitDecision decision;
    for (std::size_t i = 0; i < devices; ++i) decision.replicas.push_back({DeviceId(i), 1});
    return uniform_strategy(*problem_, decision);
  }
  TensorId parameter(std::size_t i) const { return problem_->folded->chains[i].parameter; }

  std::unique_ptr<const cost::Problem> problem_ = toy_problem(support::tiny_mlp_graph(), 3, 6);
};

TEST_F(LostServers, AreLeftToTheCompiler) {
  Strategy strategy = on(3);
  strategy.sync = {
      {.parameter = parameter(0), .method = SyncMethod::kParameterServer, .server = DeviceId(2)},
      {.parameter = parameter(1),
       .method = SyncMethod::kParameterServer,
       .servers = {{DeviceId(0), 1}, {DeviceId(1), 2}, {DeviceId(2), 3}}}};
  EXPECT_EQ(without_lost_servers(*problem_, strategy), strategy.sync);  // all are there

  strategy.units = on(2).units;
  strategy.sync = without_lost_servers(*problem_, strategy);
  check_strategy(*problem_, strategy, "two devices");
  EXPECT_FALSE(strategy.sync[0].server.valid());
  EXPECT_EQ(strategy.sync[1].servers, (std::vector<Replica>{{DeviceId(0), 1}, {DeviceId(1), 2}}));
}

// By samples, not by name: of two samples, two of three devices have one.
TEST_F(LostServers, AreThoseWithoutSamplesToo) {
  Strategy strategy = on(3);
  for (UnitDecision& unit : strategy.units) unit.replicas[2].weight = 1e-6;
  strategy.sync = {
      {.parameter = parameter(0), .method = SyncMethod::kParameterServer, .server = DeviceId(2)}};
  EXPECT_THROW(check_strategy(*problem_, strategy, "as it is"), Error);
  strategy.sync = without_lost_servers(*problem_, strategy);
  check_strategy(*problem_, strategy, "mended");
}

TEST_F(LostServers, LeaveAGroupThatIsOnOtherDevices) {
  Strategy strategy = on(3);
  const auto& chains = problem_->folded->chains;
  for (const auto* chain : {&chains.front(), &chains.back()}) {
    strategy.sync.push_back({.parameter = chain->parameter, .group = 1});
  }
  for (UnitDecision& unit : strategy.units) unit.replicas.pop_back();
  EXPECT_EQ(without_lost_servers(*problem_, strategy)[1].group, 1u);  // all moved alike

  const UnitId first = unit_of(*problem_, strategy, chains.front().ops[0]);
  strategy.units[first].replicas = on(3).units[UnitId(0)].replicas;
  strategy.sync = without_lost_servers(*problem_, strategy);
  check_strategy(*problem_, strategy, "apart");
  EXPECT_EQ(strategy.sync[1].group, 0u);
}

}  // namespace
}  // namespace heterog::decide
