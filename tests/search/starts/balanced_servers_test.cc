// Servers that are chosen by bytes.
#include "search/starts/balanced_servers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "decide/layout.h"
#include "oracle/evaluator.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

using decide::ParameterSync;

// No server has more than the others by a parameter.
TEST(BalancedServers, HaveAboutAsManyBytes) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 64);
  const decide::Strategy strategy = balanced_ps(*problem);
  EXPECT_EQ(strategy.sync.size(), problem->folded->chains.size());
  std::vector<Bytes> loads(problem->cluster->device_count(), 0);
  Bytes largest = 0;
  for (const ParameterSync& sync : strategy.sync) {
    EXPECT_EQ(sync.method, decide::SyncMethod::kParameterServer);
    const Bytes bytes = problem->graph->bytes(sync.parameter, 1);
    loads[sync.server.value()] += bytes;
    largest = std::max(largest, bytes);
  }
  const auto [least, most] = std::ranges::minmax(loads);
  EXPECT_LE(most - least, largest);
  EXPECT_GT(least, 0);
}

// The table of words is looked up in; nothing else is. One that is the output's weight too has a
// gradient that is full.
TEST(Parallax, ServesTablesThatAreLookedUpInAlone) {
  const auto problem = load_test_problem("gnmt4-tiny", "heterog-4gpu", 16);
  const decide::Strategy strategy = parallax(*problem);
  ASSERT_FALSE(strategy.sync.empty());
  for (const ParameterSync& sync : strategy.sync) {
    const std::string name = problem->graph->tensor(sync.parameter).name;
    EXPECT_NE(name.find("embed"), std::string::npos) << name;
  }
  EXPECT_EQ(strategy.units.raw().front().sync, decide::SyncMethod::kAllReduce);
  oracle::Evaluator evaluator(*problem);
  EXPECT_GT(evaluator.evaluate(strategy).step, 0);
  EXPECT_TRUE(parallax(*load_test_problem("vgg19-tiny", "heterog-4gpu", 16)).sync.empty());
}

// AutoDist's parts: the least divisor of the rows, a server each; or every server, by its network.
TEST(PartitionedServers, ShareRows) {
  const auto problem = load_test_problem("vgg19", "autosync-b7", 512);
  for (ServerParts parts : {ServerParts::kDivisor, ServerParts::kBytes}) {
    const decide::Strategy strategy = partitioned_ps(*problem, parts);
    EXPECT_EQ(strategy.sync.size(), problem->folded->chains.size());
    std::vector<double> seconds(problem->cluster->device_count(), 0);
    double all = 0;
    for (const ParameterSync& sync : strategy.sync) {
      const auto shape = problem->graph->shape(sync.parameter);
      if (sync.servers.empty()) {
        EXPECT_TRUE(sync.server.valid());
        EXPECT_LT(problem->graph->bytes(sync.parameter, 1), 2 * kLeastServedBytes);
        continue;
      }
      if (parts == ServerParts::kDivisor) {
        EXPECT_EQ(shape[0].c % static_cast<std::int64_t>(sync.servers.size()), 0);
        EXPECT_LT(sync.servers.size(), 8u);
      }
      for (const decide::Replica& one : sync.servers) {
        const double bytes =
            one.weight * static_cast<double>(problem->graph->bytes(sync.parameter, 1));
        seconds[one.device.value()] += bytes;
        all += bytes;
      }
    }
    if (parts == ServerParts::kBytes) {
      EXPECT_GT(*std::ranges::min_element(seconds), 0);
    }
    EXPECT_GT(all, 0);
  }
  // A short step: the largest table no longer goes into one network card.
  oracle::Evaluator evaluator(*problem);
  const auto step = [&](const decide::Strategy& strategy) {
    return static_cast<double>(evaluator.evaluate(strategy).step);
  };
  EXPECT_LT(step(partitioned_ps(*problem, ServerParts::kBytes)), 0.6 * step(even_ps(*problem)));
}

// Of clipped gradients all is wanted: a parameter has one server.
TEST(PartitionedServers, AreOneWhereGradientsAreWantedWhole) {
  const auto problem = load_test_problem("gnmt4-tiny", "heterog-4gpu", 16);
  const decide::Strategy strategy = partitioned_ps(*problem, ServerParts::kBytes);
  const decide::Layout layout = decide::lay_out(*problem, strategy);
  int one = 0;
  for (const ParameterSync& sync : strategy.sync) {
    EXPECT_NE(sync.server.valid(), !sync.servers.empty());
    EXPECT_EQ(layout.home(sync.parameter).partitioned(), !sync.servers.empty());
    one += sync.server.valid() ? 1 : 0;
  }
  EXPECT_GT(one, 0);  // the tables that are looked up in
}

// Where hosts serve, they alone do.
TEST(BalancedServers, AreHostsWhereTheseServe) {
  const auto problem = load_test_problem("resnet50-tiny", "tensorflow-ec2-64gpu", 64);
  for (const ParameterSync& sync : balanced_ps(*problem).sync) {
    EXPECT_TRUE(problem->cluster->is_host(sync.server));
  }
  for (const ParameterSync& sync : partitioned_ps(*problem, ServerParts::kBytes).sync) {
    for (const decide::Replica& one : sync.servers) {
      EXPECT_TRUE(problem->cluster->is_host(one.device));
    }
  }
}

}  // namespace
}  // namespace heterog::search
