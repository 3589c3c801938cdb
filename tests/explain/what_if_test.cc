// Faster devices and links: the same speed changes nothing, known steps shorten as they must.
#include "explain/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decide/problems.h"
#include "sim/simulator.h"

namespace heterog::explain {
namespace {

Nanoseconds step_of(const cost::Problem& problem, const decide::Strategy& strategy) {
  return sim::simulate(compiler::compile(problem, strategy), strategy.order).step;
}

decide::Strategy even(const cost::Problem& problem, decide::SyncMethod sync) {
  return decide::uniform_strategy(problem, decide::even_decision(problem, sync));
}

TEST(WhatIf, TheSameSpeedChangesNothing) {
  const auto problem = decide::model_problem("vgg19-tiny", 3, 12);
  for (auto sync : {decide::SyncMethod::kParameterServer, decide::SyncMethod::kAllReduce}) {
    const decide::Strategy strategy = even(*problem, sync);
    const Nanoseconds step = step_of(*problem, strategy);
    for (const WhatIf& what :
         what_if(*problem, strategy, possible_upgrades(*problem->cluster), {.factor = 1})) {
      EXPECT_EQ(what.step, step) << what.upgrade.name;
    }
  }
}

// Everything on device 0, every op takes 1 µs: the step halves with that device, and with no other.
TEST(WhatIf, TheOnlyDeviceInUseHalvesTheStep) {
  const auto problem = decide::model_problem("lenet5-tiny", 2, 8);
  const decide::Strategy strategy =
      decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0)));
  const Nanoseconds step = step_of(*problem, strategy);
  for (const WhatIf& what : what_if(*problem, strategy, possible_upgrades(*problem->cluster), {})) {
    const bool used = testing::Value(what.upgrade.devices, testing::Contains(DeviceId(0)));
    EXPECT_EQ(what.step, used ? step / 2 : step) << what.upgrade.name;
  }
}

// Bytes are what takes time: NICs of 1 GB/s. All of them twice as fast save time, one of three in a
// ring saves none of what the others hold up, and what is saved is at most half.
TEST(WhatIf, FasterLinksShortenWhatCrossesThem) {
  const auto problem = decide::model_problem("vgg19-tiny", 3, 12);
  const decide::Strategy strategy = even(*problem, decide::SyncMethod::kAllReduce);
  const Nanoseconds step = step_of(*problem, strategy);
  const auto results = what_if(*problem, strategy, possible_upgrades(*problem->cluster), {});
  EXPECT_EQ(results.front().upgrade.name, "all links of kind nic");
  EXPECT_LT(results.front().step, step * 3 / 4);
  EXPECT_GE(results.front().step, step / 2);
  for (const WhatIf& what : results) EXPECT_LE(results.front().step, what.step);
}

TEST(PossibleUpgrades, AreDevicesTypesWiresAndKindsOfWire) {
  const auto problem = decide::model_problem("lenet5-tiny", 2, 8);
  std::vector<std::string> names;
  for (const Upgrade& upgrade : possible_upgrades(*problem->cluster)) {
    names.push_back(upgrade.name);
    const std::size_t links = upgrade.name == "link m0/nic" || upgrade.name == "link m1/nic" ? 2
                              : upgrade.name == "all links of kind nic"                      ? 4
                                                                                             : 0;
    EXPECT_EQ(upgrade.links.size(), links) << upgrade.name;
  }
  EXPECT_THAT(names, testing::ElementsAre("m0/gpu0", "m1/gpu0", "all fast", "link m0/nic",
                                          "link m1/nic", "all links of kind nic"));
}

TEST(PossibleUpgrades, OfManyDevicesAreTypesAndKindsAlone) {
  const auto problem = decide::model_problem("lenet5-tiny", kMostOneByOne + 1, 33);
  std::vector<std::string> names;
  for (const Upgrade& upgrade : possible_upgrades(*problem->cluster)) names.push_back(upgrade.name);
  EXPECT_THAT(names, testing::ElementsAre("all fast", "all links of kind nic"));
}

TEST(FasterLinks, LeaveTheOriginalAsItIs) {
  const auto problem = decide::model_problem("lenet5-tiny", 2, 8);
  const cluster::Cluster& before = *problem->cluster;
  const LinkId nic = before.route(DeviceId(0), DeviceId(1)).links.front();
  const cluster::Cluster after = cluster::with_faster_links(before, std::vector<LinkId>{nic}, 2);
  EXPECT_EQ(after.link(nic).bytes_per_second, 2 * before.link(nic).bytes_per_second);
  const auto route = after.route(DeviceId(0), DeviceId(1)).links;
  EXPECT_THAT(route, testing::ElementsAreArray(before.route(DeviceId(0), DeviceId(1)).links));
  EXPECT_NE(route.data(), before.route(DeviceId(0), DeviceId(1)).links.data());
}

}  // namespace
}  // namespace heterog::explain
