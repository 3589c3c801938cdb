// Damaged cluster and device files end in an input error or a valid cluster, never in a crash.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "cluster/cluster_io.h"

namespace heterog::cluster {
namespace {

// One to four of: a byte changed, a span cut, a span repeated, a number or bracket put in.
std::string mutate(std::string text, Rng& rng) {
  static const std::vector<std::string> kPieces = {
      "-1",   "0",       "1e308", "-1e400", "9223372036854775807", "1e-320", "null",
      "true", "[]",      "{}",    "\"\"",   "\"count\": 99999,",   "{",      "]",
      ",",    "\\u0000", "/*",    "\xff",   "\"sockets\"",         "\"bus\""};
  const std::uint64_t edits = 1 + rng.below(4);
  for (std::uint64_t i = 0; i < edits && !text.empty(); ++i) {
    const std::size_t at = rng.below(text.size());
    const std::size_t span = std::min<std::size_t>(1 + rng.below(40), text.size() - at);
    switch (rng.below(5)) {
      case 0:
        text[at] = static_cast<char>(rng.below(256));
        break;
      case 1:
        text.erase(at, span);
        break;
      case 2:
        text.insert(at, text.substr(at, span));
        break;
      case 3:
        text.insert(at, kPieces[rng.below(kPieces.size())]);
        break;
      default: {  // a number becomes another number
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const std::size_t end = text.find_first_not_of("0123456789.e-+", digit);
        text.replace(digit, end - digit, kPieces[rng.below(6)]);
      }
    }
  }
  return text;
}

// Touches every route, so that sanitizers see a bad one.
double use(const Cluster& c) {
  double sum = 0;
  for (DeviceId a : c.device_ids()) {
    for (DeviceId b : c.device_ids()) {
      if (a == b) continue;
      for (LinkId link : c.route(a, b).links) sum += c.link(link).bytes_per_second;
    }
  }
  return sum;
}

TEST(ClusterFuzz, TenThousandDamagedClusterFiles) {
  const DeviceDatabase devices = read_devices("configs/devices.json");
  const std::vector<std::string> seeds = {read_file("configs/clusters/heterog-12gpu.json"),
                                          read_file("configs/clusters/autosync-b11.json"),
                                          read_file("configs/clusters/office-mixed.json")};
  Rng rng(1);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::string text = mutate(seeds[i % seeds.size()], rng);
    try {
      const Cluster c = parse_cluster(text, "fuzz.json", devices);
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
  // The first three devices of the data base; the whole of it is slow to parse so often.
  std::string text = read_file("configs/devices.json");
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
