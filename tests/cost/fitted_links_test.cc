// Links by what flows over them took: exact where one link is crossed, and as a file.
#include "cost/fitted_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/rng.h"
#include "cluster/builders.h"
#include "cluster/cluster_io.h"
#include "cost/link_profile_io.h"

namespace heterog::cost {
namespace {

using Kind = MeasuredFlow::Kind;

// Three devices on one bus of 1 GB/s, without latency.
cluster::Cluster bus() {
  cluster::ClusterBuilder builder("bus");
  cluster::MachineSpec spec = cluster::test_machine("m", 3);
  spec.fabric = {cluster::FabricSpec::Kind::kBus, 1e9, 0, 0};
  builder.add_machine(std::move(spec));
  return std::move(builder).build("bus");
}

// One x: (log(m / p) + x)² / 0.1² + x² / 0.5² is least at x = −log(m / p) · 0.25 / 0.26; with n
// flows that are alike, at −log(m / p) · 0.25 n / (0.25 n + 0.01).
TEST(FittedLinks, AreShrunkTowardsTheClusterTheMoreTheFewerFlowsThereAre) {
  const cluster::Cluster cluster = bus();
  for (const std::size_t count : {1, 2, 50}) {
    const std::vector<MeasuredFlow> flows(
        count, {Kind::kTransfer, {DeviceId(0), DeviceId(1)}, 1'000'000, 2e-3});
    const FittedLinks fitted = fit_links(cluster, flows);
    const double n = static_cast<double>(count);
    EXPECT_NEAR(std::log(fitted.bandwidth[LinkId(0)]), -std::log(2) * 0.25 * n / (0.25 * n + 0.01),
                1e-3);
    EXPECT_NEAR(fitted.error_before, std::log(2), 1e-9);
  }
}

TEST(FittedLinks, StayWhereNothingIsKnown) {
  const cluster::Cluster cluster = bus();
  EXPECT_EQ(fit_links(cluster, {}).bandwidth, (IdVector<LinkId, double>(1, 1.0)));
  const std::vector<MeasuredFlow> right = {
      {Kind::kTransfer, {DeviceId(0), DeviceId(1)}, 1'000'000, 1e-3}};
  EXPECT_NEAR(fit_links(cluster, right).bandwidth[LinkId(0)], 1, 1e-6);
}

// Every link is off by a factor of its own, and every flow is what its formula says there: after
// the fit flows take what they take, those of other devices and sizes too.
TEST(FittedLinks, ExplainAWorldOfOtherLinks) {
  for (const char* name : {"workstation-3090-4090", "office-mixed", "heterog-8gpu"}) {
    const cluster::Cluster cluster =
        cluster::load_cluster("configs/clusters/" + std::string(name) + ".json");
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(seed));
      Rng rng(seed);
      IdVector<LinkId, double> factors;
      for (std::size_t i = 0; i < cluster.link_count(); ++i) {
        factors.push_back(std::exp(0.8 * (rng.uniform() - 0.5)));
      }
      const cluster::Cluster world = cluster::with_scaled_links(cluster, factors);
      std::vector<MeasuredFlow> flows, unseen;
      std::vector<DeviceId> all;
      for (DeviceId from : cluster.device_ids()) {
        all.push_back(from);
        for (DeviceId to : cluster.device_ids()) {
          if (from == to) continue;
          flows.push_back({Kind::kTransfer, {from, to}, 20'000'000});
          unseen.push_back({Kind::kTransfer, {from, to}, 3'000'000});
        }
      }
      flows.push_back({Kind::kAllReduce, all, 50'000'000});
      unseen.push_back({Kind::kGather, all, 9'000'000});
      for (MeasuredFlow& flow : flows) flow.seconds = predicted_seconds(world, flow);
      const FittedLinks fitted = fit_links(cluster, flows);
      EXPECT_GT(fitted.error_before, 0.05);
      EXPECT_LT(fitted.error_after, 0.2 * fitted.error_before);
      const cluster::Cluster now = with_fitted_links(cluster, fitted);
      EXPECT_EQ(now.hash(), cluster.hash());
      double before = 0, after = 0;
      for (const MeasuredFlow& flow : unseen) {
        const double takes = std::log(predicted_seconds(world, flow));
        before += std::abs(takes - std::log(predicted_seconds(cluster, flow)));
        after += std::abs(takes - std::log(predicted_seconds(now, flow)));
      }
      EXPECT_LT(after, 0.25 * before);
    }
  }
}

// What takes its time to start says nothing of bandwidth.
TEST(FittedLinks, LeaveOutWhatIsLatency) {
  const cluster::Cluster cluster = cluster::load_cluster("configs/clusters/office-mixed.json");
  const std::vector<MeasuredFlow> flows = {{Kind::kTransfer, {DeviceId(0), DeviceId(2)}, 64, 1.0},
                                           {Kind::kAllReduce, {DeviceId(0), DeviceId(2)}, 64, 1.0}};
  for (const double factor : fit_links(cluster, flows).bandwidth) EXPECT_EQ(factor, 1);
}

// One transfer crosses the links of its route. The others take exp(0.5² / 2) times as long, and
// nothing changes where nothing was seen.
TEST(FittedLinks, ThatWereNotSeenAreExpectedToBeSlower) {
  const cluster::Cluster cluster = cluster::load_cluster("configs/clusters/office-mixed.json");
  const auto route = cluster.route(DeviceId(0), DeviceId(2)).links;
  const std::vector<MeasuredFlow> flows = {
      {Kind::kTransfer, {DeviceId(0), DeviceId(2)}, 20'000'000, 0.1}};
  const FittedLinks fitted = fit_links(cluster, flows);
  EXPECT_EQ(std::set<LinkId>(fitted.seen.begin(), fitted.seen.end()),
            std::set<LinkId>(route.begin(), route.end()));
  const FittedLinks expected = with_unseen_expected(fitted);
  for (const LinkId link : id_range<LinkId>(cluster.link_count())) {
    const bool seen = std::ranges::find(route, link) != route.end();
    EXPECT_DOUBLE_EQ(expected.bandwidth[link],
                     fitted.bandwidth[link] * (seen ? 1 : std::exp(-0.125)));
  }
  EXPECT_EQ(with_unseen_expected(fit_links(cluster, {})).bandwidth,
            fit_links(cluster, {}).bandwidth);
}

TEST(FittedLinks, AreReadBackByTheNamesOfLinks) {
  const cluster::Cluster cluster = cluster::load_cluster("configs/clusters/office-mixed.json");
  FittedLinks fitted{.bandwidth = IdVector<LinkId, double>(cluster.link_count(), 1.0)};
  fitted.bandwidth[LinkId(1)] = 0.25;
  fitted.error_before = 0.5;
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("heterog_links_" + std::to_string(::getpid()) + ".json"))
                               .string();
  write_link_profile(path, cluster, fitted, 7);
  EXPECT_TRUE(is_link_profile(path));
  EXPECT_EQ(read_link_profile(path, cluster).bandwidth, fitted.bandwidth);
  // Figures are absolute: of the cluster that was scaled, the factor is 1.
  const cluster::Cluster scaled = with_fitted_links(cluster, fitted);
  EXPECT_EQ(read_link_profile(path, scaled).bandwidth[LinkId(1)], 1);
  try {
    read_link_profile(path, bus());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_EQ(std::string(error.what()).substr(path.size()),
              ": links[0]: no link '" + cluster.link(LinkId(1)).name +
                  "' in cluster bus; measured on cluster office-mixed");
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace heterog::cost
