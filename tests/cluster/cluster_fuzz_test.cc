// Damaged cluster and device files end in an input error or a valid cluster, never in a crash.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "cluster/cluster_io.h"
#include "support/mutate.h"

namespace heterog::cluster {
namespace {

using support::mutate;

// Touches every route, so that sanitizers see a bad one.
double use(const Cluster& c) {
  double sum = 0;
  for (DeviceId a : c.place_ids()) {
    for (DeviceId b : c.place_ids()) {
      if (a == b) continue;
      for (LinkId link : c.route(a, b).links) sum += c.link(link).bytes_per_second;
    }
  }
  return sum;
}

TEST(ClusterFuzz, TenThousandDamagedClusterFiles) {
  const DeviceDatabase devices = read_devices("configs/devices.json");
  const LinkDatabase links = read_links("configs/links.json");
  const std::vector<std::string> seeds = {read_file("configs/clusters/heterog-12gpu.json"),
                                          read_file("configs/clusters/autosync-b11.json"),
                                          read_file("configs/clusters/office-mixed.json"),
                                          read_file("configs/clusters/tensorflow-ec2-64gpu.json")};
  Rng rng(1);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::string text = mutate(seeds[i % seeds.size()], rng);
    try {
      const Cluster c = parse_cluster(text, "fuzz.json", devices, links);
      EXPECT_GT(use(c) + 1, 0);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      ++refused;
    }
  }
  // Both happen often, so the mutator neither spares nor shreds the files.
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 3000);
}

TEST(ClusterFuzz, TenThousandDamagedDeviceFiles) {
  // The first calibration and the first two devices of the data base; the whole of it is slow to
  // parse so often.
  std::string text = read_file("configs/devices.json");
  const std::size_t second = text.rfind(',', text.find("{\"name\": \"p100\""));
  text = text.substr(0, second) + "],\n" + text.substr(text.find("  // End of the calibrations"));
  text = text.substr(0, text.find("{\"name\": \"V100-SXM2-16GB\""));
  text = text.substr(0, text.rfind(',')) + "]}";
  ASSERT_EQ(parse_devices(text, "seed.json").size(), 2u);
  Rng rng(2);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 10000; ++i) {
    try {
      const DeviceDatabase devices = parse_devices(mutate(text, rng), "fuzz.json");
      EXPECT_FALSE(devices.empty());
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace heterog::cluster
