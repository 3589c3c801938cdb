// Decoding against all strategies of small problems, and what its cost of changes does.
#include "learn/drawing/decode.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "learn/drawing/actions.h"

namespace heterog::learn {
namespace {

constexpr int kGroups = 5, kActions = 3;

double worth(const torch::Tensor& log_p, const std::vector<double>& weights, double switch_cost,
             const Actions& path) {
  double sum = 0;
  for (int n = 0; n < kGroups; ++n) {
    sum +=
        kGroups * weights[n] * log_p[n][static_cast<std::int64_t>(path[n].value())].item<double>();
    if (n > 0 && path[n] != path[n - 1]) sum -= switch_cost;
  }
  return sum;
}

TEST(Decode, IsTheBestOfAllPaths) {
  torch::manual_seed(3);
  const std::vector<double> weights = {0.1, 0.4, 0.05, 0.25, 0.2};
  for (int trial = 0; trial < 60; ++trial) {
    const auto log_p =
        torch::log_softmax(torch::randn({kGroups, kActions}, torch::kFloat64) * 2, 1);
    for (const double cost : {0.0, 0.3, 1.0, 4.0}) {
      double best = -1e30;
      for (int code = 0; code < std::pow(kActions, kGroups); ++code) {
        Actions path;
        for (int n = 0, rest = code; n < kGroups; ++n, rest /= kActions) {
          path.emplace_back(static_cast<std::size_t>(rest % kActions));
        }
        best = std::max(best, worth(log_p, weights, cost, path));
      }
      const Actions found = decode(log_p, weights, cost);
      EXPECT_NEAR(worth(log_p, weights, cost, found), best, 1e-9) << trial << " " << cost;
    }
  }
}

TEST(Decode, WithoutACostIsTheFirstOfTheMostLikelyOfEachGroup) {
  const auto log_p = torch::tensor({{0.1, 0.6, 0.3}, {0.4, 0.2, 0.4}}).log();
  EXPECT_EQ(decode(log_p, {0.9, 0.1}, 0), actions({1, 0}));
}

// Of 1,024 devices: 1,028 columns, more than a byte counts.
TEST(Decode, KnowsActionsBeyond255) {
  auto p = torch::zeros({3, 1028});
  p[0][1023] = p[1][255] = p[2][1025] = 1;
  const auto log_p = p.log().clamp_min(-1e9);
  EXPECT_EQ(decode(log_p, {0.2, 0.3, 0.5}, 0), actions({1023, 255, 1025}));
}

TEST(Decode, AGreatCostLeavesOneAction) {
  const auto log_p = torch::log(torch::tensor({{0.9, 0.1}, {0.2, 0.8}, {0.2, 0.8}}));
  EXPECT_EQ(decode(log_p, {0.6, 0.2, 0.2}, 0), actions({0, 1, 1}));
  EXPECT_EQ(decode(log_p, {0.6, 0.2, 0.2}, 1e6), actions({0, 0, 0}));  // by weight, not by number
}

// Without a cost, each group is drawn as the network says, and weights do not matter.
TEST(Decode, DrawsAsLikelyAsTheNetworkSays) {
  const auto log_p = torch::log(torch::tensor({{0.7, 0.2, 0.1}, {0.1, 0.3, 0.6}}));
  int counts[2][3] = {};
  for (std::uint64_t s = 0; s < 4000; ++s) {
    const Actions drawn = decode_draw(log_p, {0.9, 0.1}, 0, Rng(s));
    for (int n = 0; n < 2; ++n) ++counts[n][drawn[n].value()];
  }
  EXPECT_NEAR(counts[0][0], 2800, 120);
  EXPECT_NEAR(counts[0][2], 400, 80);
  EXPECT_NEAR(counts[1][2], 2400, 130);
}

}  // namespace
}  // namespace heterog::learn
