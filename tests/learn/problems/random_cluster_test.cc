// Random clusters: what was asked for, and always the same.
#include "learn/problems/random_cluster.h"

#include <gtest/gtest.h>

#include <set>

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

}  // namespace
}  // namespace heterog::learn
