// Random clusters: what was asked for, and always the same.
#include "learn/problems/random_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace heterog::learn {
namespace {

TEST(RandomCluster, HasUpToSoManyDevicesAndIsTheSameEveryTime) {
  const auto devices = cluster::read_devices("configs/devices.json");
  const auto links = cluster::read_links("configs/links.json");
  std::set<std::size_t> counts, types;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto drawn = random_cluster("one", 16, Rng(seed), devices, links);
    const auto again = random_cluster("one", 16, Rng(seed), devices, links);
    ASSERT_EQ(drawn.device_count(), again.device_count());
    for (DeviceId device : drawn.device_ids()) {
      EXPECT_EQ(drawn.type_of(device).name, again.type_of(device).name);
    }
    counts.insert(drawn.device_count());
    types.insert(drawn.type_count());
  }
  EXPECT_EQ(*counts.begin(), 2u);
  EXPECT_EQ(*counts.rbegin(), 16u);
  EXPECT_EQ(types, (std::set<std::size_t>{1, 2, 3}));
}

TEST(RandomCluster, HasManyDevicesInHalfOfAllDrawsAndMachinesThatAreAlikeInMost) {
  const auto devices = cluster::read_devices("configs/devices.json");
  const auto links = cluster::read_links("configs/links.json");
  int many = 0, alike = 0, with_machines = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto drawn = random_cluster("one", 128, Rng(seed), devices, links);
    EXPECT_LE(drawn.device_count(), 128u);
    many += drawn.device_count() >= 64 ? 1 : 0;
    // Of each type, how many devices its machines have; the last machine has what is left.
    std::map<std::size_t, std::size_t> counts;
    for (DeviceId device : drawn.device_ids()) ++counts[drawn.device(device).machine.value()];
    std::map<std::string, std::set<std::size_t>> of_type;
    for (DeviceId device : drawn.device_ids()) {
      const std::size_t machine = drawn.device(device).machine.value();
      if (machine + 1 < counts.size()) of_type[drawn.type_of(device).name].insert(counts[machine]);
    }
    if (counts.size() < 8) continue;
    ++with_machines;
    alike += std::ranges::all_of(of_type, [](const auto& one) { return one.second.size() == 1; });
  }
  EXPECT_NEAR(many, 100, 30);
  EXPECT_GT(alike, with_machines / 2);
  EXPECT_LT(alike, with_machines);
}

}  // namespace
}  // namespace heterog::learn
