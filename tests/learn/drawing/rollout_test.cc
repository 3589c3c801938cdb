// Sampling: the right frequencies, no masked action, and a function of (generator, sample) alone.
#include "learn/drawing/rollout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

#include "learn/drawing/actions.h"
#include "learn/reinforce/case.h"
#include "support/wide_cluster.h"

namespace heterog::learn {
namespace {

TEST(Rollout, DrawsWithTheGivenProbabilities) {
  const auto p = torch::tensor({{0.5, 0.25, 0.0, 0.25}, {0.0, 0.0, 1.0, 0.0}});
  const auto samples = sample_actions(p.log().clamp_min(-1e9), 4000, Rng(1));
  std::array<int, 4> counts{};
  for (const Actions& a : samples) {
    ++counts[a[0].value()];
    EXPECT_EQ(a[1], space::ActionId(2));
  }
  EXPECT_EQ(counts[2], 0);
  // Standard deviation of the counts is at most √(4000 / 4) ≈ 32.
  EXPECT_NEAR(counts[0], 2000, 130);
  EXPECT_NEAR(counts[1], 1000, 130);
  EXPECT_NEAR(counts[3], 1000, 130);
}

TEST(Rollout, SampleDependsOnItsNumberNotOnHowManyThereAre) {
  const auto log_p = torch::log_softmax(torch::randn({30, 12}), 1);
  const auto few = sample_actions(log_p, 3, Rng(9));
  const auto many = sample_actions(log_p, 50, Rng(9));
  for (int s = 0; s < 3; ++s) EXPECT_EQ(few[s], many[s]);
  EXPECT_NE(few[0], few[1]);
  EXPECT_NE(sample_actions(log_p, 1, Rng(10))[0], few[0]);
}

// Of 1,024 devices: 1,028 columns, more than a byte counts.
TEST(Rollout, DrawsActionsBeyond255) {
  auto p = torch::zeros({3, 1028});
  p[0][1023] = p[1][255] = p[2][1025] = 1;
  const auto log_p = p.log().clamp_min(-1e9);
  const Actions expected = actions({1023, 255, 1025});
  EXPECT_EQ(sample_actions(log_p, 2, Rng(1)), (std::vector<Actions>{expected, expected}));
}

TEST(Rollout, ActionsOfAWideClusterMeanWhatTheyAreCalled) {
  const Case c =
      make_case("wide", support::wide_problem(), decide::OrderPolicy::kRank, TrainConfig{});
  const std::vector<Actions> plain = first_strategies(c);
  const auto shares = [&](std::size_t i) {
    return strategy_of(c, plain[i]).units[UnitId(0)].replicas.size();
  };
  for (std::size_t scheme = 0; scheme < space::kReplicated.size(); ++scheme) {
    EXPECT_EQ(shares(scheme), support::kWideDevices) << scheme;
  }
  EXPECT_EQ(shares(space::kReplicated.size()), 1u);  // blocks on single devices
  EXPECT_EQ(c.features.allowed.size(1), 1028);
}

TEST(Rollout, TensorOfActions) {
  EXPECT_TRUE(torch::equal(to_tensor({actions({1, 2, 3}), actions({4, 5, 300})}),
                           torch::tensor({{1, 2, 3}, {4, 5, 300}}, torch::kInt64)));
}

}  // namespace
}  // namespace heterog::learn
