// Draws the text of a cluster file, and reads it.
#include "learn/problems/random_cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace heterog::learn {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 4> kPcie3 = {"pcie3", "pcie3-across-switches",
                                                    "pcie3-sockets", "pcie3-staged"};
constexpr std::array<std::string_view, 3> kPcie4 = {"pcie4", "pcie4-sockets", "pcie4-staged"};
constexpr std::array<std::string_view, 1> kNvlink2 = {"nvlink2-x2"};
constexpr std::array<std::string_view, 1> kNvlink3 = {"nvlink3"};
constexpr std::array<std::string_view, 1> kNvlink4 = {"nvlink4"};

// A model of device, and what links such devices in a machine.
struct Card {
  std::string_view model;
  Names fabrics;
};
// A machine of such devices.
struct Build {
  std::int64_t count = 0;
  std::string_view fabric;
};
constexpr std::array<Card, 14> kCards = {{{"V100-PCIE-16GB", kPcie3},
                                          {"V100-SXM2-16GB", kNvlink2},
                                          {"P100-PCIE-12GB", kPcie3},
                                          {"P100-PCIE-16GB", kPcie3},
                                          {"GTX-1080-Ti", kPcie3},
                                          {"RTX-2080-Ti", kPcie3},
                                          {"T4", kPcie3},
                                          {"L4", kPcie4},
                                          {"RTX-3060", kPcie4},
                                          {"RTX-3090", kPcie4},
                                          {"RTX-4090", kPcie4},
                                          {"A100-SXM4-40GB", kNvlink3},
                                          {"A100-SXM4-80GB", kNvlink3},
                                          {"H100-SXM5-80GB", kNvlink4}}};

constexpr std::string_view kGigabit = "1gbe";
constexpr std::array<std::string_view, 9> kNics = {kGigabit,     "10gbe-tcp",   "25gbe-tcp",
                                                   "25gbe-rdma", "50gbe-tcp",   "50gbe-rdma",
                                                   "100gbe-tcp", "100gbe-rdma", "infiniband-fdr"};

template <class Items>
const auto& pick(const Items& items, Rng& rng) {
  return items[rng.below(items.size())];
}

std::string nic_text(std::string_view nic) {
  // What 1 GbE carries: 0.94 of its line rate, by TCP in frames of 1,500 bytes.
  if (nic == kGigabit) return R"({"bandwidth_bytes_per_second": 1.175e8, "latency_seconds": 2e-5})";
  return fmt::format(R"({{"link": "{}"}})", nic);
}

// Half of the clusters have so many devices or more, if they may.
constexpr double kMany = 64;

std::int64_t random_count(std::int64_t most_devices, Rng& rng) {
  double least = 1, most = std::log2(static_cast<double>(std::max<std::int64_t>(2, most_devices)));
  const double many = std::log2(kMany);
  if (most > many) (rng.below(2) == 0 ? most : least) = many;
  return static_cast<std::int64_t>(std::exp2(least + (most - least) * rng.uniform()) + 0.5);
}

}  // namespace

cluster::Cluster random_cluster(const std::string& name, std::int64_t most_devices, Rng rng,
                                const cluster::DeviceDatabase& devices,
                                const cluster::LinkDatabase& links) {
  std::int64_t left = random_count(most_devices, rng);
  std::vector<const Card*> cards;
  const std::uint64_t models = 1 + rng.below(3);
  for (std::uint64_t i = 0; i < models; ++i) cards.push_back(&pick(kCards, rng));
  const std::string_view network = pick(kNics, rng);
  const bool one_network = rng.below(4) != 0, alike = rng.below(4) != 0;
  const auto draw_build = [&](const Card& card) {
    return Build{.count = std::int64_t{1} << rng.below(4), .fabric = pick(card.fabrics, rng)};
  };
  std::vector<Build> builds;  // of machines that are alike
  for (const Card* card : cards) builds.push_back(draw_build(*card));

  std::string machines;
  for (int machine = 0; left > 0; ++machine) {
    const std::size_t kind = static_cast<std::size_t>(machine) % cards.size();
    const Card& card = *cards[kind];
    const Build build = alike ? builds[kind] : draw_build(card);
    const std::int64_t count = std::min(left, build.count);
    const std::string_view nic = one_network ? network : pick(kNics, rng);
    if (machine > 0) machines += ", ";
    machines += fmt::format(R"({{"name": "m{}", "devices": [{{"model": "{}", "count": {}}}], )",
                            machine, card.model, count);
    if (count > 1) {
      machines += fmt::format(R"("fabric": {{"kind": "switch", "link": "{}"}}, )", build.fabric);
    }
    machines += fmt::format(R"("nic": {}}})", nic_text(nic));
    left -= count;
  }
  const std::string servers =
      rng.below(2) == 0 ? R"(, "parameter_servers": {"link": "grpc-2020"})" : "";
  const std::string text =
      fmt::format(R"({{"format": "heterog-cluster", "version": 1, "name": "{}", "machines": [{}], )"
                  R"("network": {{"latency_seconds": 5e-6{}}}}})",
                  name, machines, servers);
  return cluster::parse_cluster(text, name, devices, links);
}

}  // namespace heterog::learn
