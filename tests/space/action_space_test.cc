// The table of actions: ids and actions are one to one, and each means what it is called.
#include "space/action_space.h"

#include <gtest/gtest.h>

#include <set>

#include "search/problems.h"
#include "support/wide_cluster.h"

namespace heterog::space {
namespace {

using decide::SyncMethod;
using search::load_test_problem;

std::vector<decide::Replica> replicas(const cost::Problem& problem, bool by_speed) {
  std::vector<decide::Replica> all;
  for (DeviceId device : problem.cluster->device_ids()) {
    all.push_back({device, by_speed ? double(problem.proportional[device.value()]) : 1});
  }
  return all;
}

// Trained weights are laid out by this order.
TEST(ActionSpace, HasTheDevicesThenFourSchemes) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  const ActionSpace actions(*problem);
  ASSERT_EQ(actions.size(), 12u);
  for (DeviceId device : problem->cluster->device_ids()) {
    const ActionId id(device.value());
    EXPECT_EQ(actions[id], (Action{.device = device}));
    EXPECT_EQ(actions.name(id), problem->cluster->device(device).name);
    EXPECT_EQ(actions.decision(id).replicas, (std::vector<decide::Replica>{{device, 1}}));
  }
  const char* const names[] = {"EV-PS", "EV-AR", "CP-PS", "CP-AR"};
  for (std::size_t i = 0; i < 4; ++i) {
    const ActionId id(8 + i);
    EXPECT_EQ(actions[id], kReplicated[i]);
    EXPECT_EQ(actions.name(id), names[i]);
    EXPECT_EQ(actions.decision(id).replicas, replicas(*problem, i >= 2));
    EXPECT_EQ(actions.decision(id).sync,
              i % 2 == 0 ? SyncMethod::kParameterServer : SyncMethod::kAllReduce);
  }
}

TEST(ActionSpace, MakesAStrategyOfOneActionPerGroup) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  const ActionSpace actions(*problem);
  std::vector<ActionId> chosen;
  for (std::size_t group = 0; group < problem->grouping.count(); ++group) {
    chosen.emplace_back(group % actions.size());
  }
  const decide::Strategy strategy = actions.strategy(chosen);
  ASSERT_EQ(strategy.units.size(), chosen.size());
  for (std::size_t group = 0; group < chosen.size(); ++group) {
    EXPECT_EQ(strategy.units[UnitId(group)], actions.decision(chosen[group]));
  }
}

// The sets of heterog-8gpu: all, the types (two V100, two P100, four GTX 1080 Ti), the two fastest
// types, and its four machines, of which those of the V100 and the P100 are types already.
TEST(ActionSpace, OfSetsGoesOnAfterThePapers) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 192);
  const ActionSpace few(*problem);
  const ActionSpace actions(*problem, ActionTable::kSets);
  for (ActionId id : few.ids()) {
    EXPECT_EQ(actions[id], few[id]);
    EXPECT_EQ(actions.name(id), few.name(id));
  }
  std::vector<std::string> names;
  for (std::size_t i = few.size(); i < actions.size(); ++i) {
    names.push_back(actions.name(ActionId(i)));
    const auto& decision = actions.decision(ActionId(i));
    EXPECT_EQ(decision.sync, i % 2 == 0 ? SyncMethod::kParameterServer : SyncMethod::kAllReduce);
    double samples = 0;
    for (const decide::Replica& replica : decision.replicas) samples += replica.weight;
    EXPECT_EQ(samples, 192);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "all-PS", "all-AR", "2 x V100-PCIE-16GB-PS", "2 x V100-PCIE-16GB-AR",
                       "2 x P100-PCIE-12GB-PS", "2 x P100-PCIE-12GB-AR", "4 x GTX-1080-Ti-PS",
                       "4 x GTX-1080-Ti-AR", "4 fastest-PS", "4 fastest-AR", "1080ti-0-PS",
                       "1080ti-0-AR", "1080ti-1-PS", "1080ti-1-AR"}));
}

TEST(ActionSpace, RefusesAnActionThatItDoesNotHave) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-4gpu", 16);
  const ActionSpace actions(*problem);
  EXPECT_THROW(actions.id({.device = DeviceId(4)}), Error);
  EXPECT_THROW(actions.id({.placement = Placement::kEven, .device = DeviceId(0)}), Error);
  EXPECT_THROW(actions.id({}), Error);
}

// 1,028 actions: every id is of one action, and that action of this id.
TEST(ActionSpace, Of1024DevicesMeansWhatItIsCalled) {
  const auto problem = support::wide_problem();
  const ActionSpace actions(*problem);
  ASSERT_EQ(actions.size(), 1028u);
  std::set<std::string> names;
  for (ActionId id : actions.ids()) {
    EXPECT_EQ(actions.id(actions[id]), id);
    EXPECT_TRUE(names.insert(actions.name(id)).second) << actions.name(id);
  }
  const std::size_t groups = problem->grouping.count();
  const auto all = [&](ActionId id) { return actions.strategy(std::vector<ActionId>(groups, id)); };
  const ActionId last = actions.single(DeviceId(1023));
  EXPECT_EQ(actions.name(last), "g-31/gpu15");
  EXPECT_EQ(all(last), decide::uniform_strategy(*problem, decide::single_decision(DeviceId(1023))));
  const ActionId even = actions.id({.placement = Placement::kEven});
  EXPECT_EQ(actions.name(even), "EV-AR");
  EXPECT_EQ(all(even), decide::uniform_strategy(
                           *problem, decide::even_decision(*problem, SyncMethod::kAllReduce)));
  const ActionId by_speed =
      actions.id({.placement = Placement::kProportional, .sync = SyncMethod::kParameterServer});
  EXPECT_EQ(actions.name(by_speed), "CP-PS");
  EXPECT_EQ(all(by_speed),
            decide::uniform_strategy(
                *problem, decide::proportional_decision(*problem, SyncMethod::kParameterServer)));
}

}  // namespace
}  // namespace heterog::space
