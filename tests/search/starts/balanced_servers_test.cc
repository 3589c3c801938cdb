// Servers that are chosen by bytes.
#include "search/starts/balanced_servers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

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

// Where hosts serve, they alone do.
TEST(BalancedServers, AreHostsWhereTheseServe) {
  const auto problem = load_test_problem("resnet50-tiny", "tensorflow-ec2-64gpu", 64);
  for (const ParameterSync& sync : balanced_ps(*problem).sync) {
    EXPECT_TRUE(problem->cluster->is_host(sync.server));
  }
}

}  // namespace
}  // namespace heterog::search
