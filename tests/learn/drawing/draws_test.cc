// Draws by stretches: where they begin and end, how often each action comes, and log π by hand.
#include "learn/drawing/draws.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <set>

#include "learn/drawing/actions.h"

namespace heterog::learn {
namespace {

constexpr std::size_t kGroups = 24;

torch::Tensor random_log_probabilities() {
  torch::manual_seed(3);
  return torch::log_softmax(torch::randn({kGroups, 5}, torch::kFloat64), 1);
}

TEST(Draws, RunsFillTheGroupsFromOneStretchToOneEach) {
  const Draws draws = draw_runs(random_log_probabilities(), 400, Rng(1));
  std::set<std::size_t> counts;
  for (std::size_t s = 0; s < draws.actions.size(); ++s) {
    std::size_t at = 0;
    for (const DrawnRun& stretch : draws.stretches[s]) {
      EXPECT_EQ(stretch.begin, at);
      ASSERT_GT(stretch.end, stretch.begin);
      for (std::size_t n = stretch.begin; n < stretch.end; ++n) {
        EXPECT_EQ(draws.actions[s][n], stretch.action);
      }
      at = stretch.end;
    }
    EXPECT_EQ(at, kGroups);
    counts.insert(draws.stretches[s].size());
  }
  EXPECT_EQ(*counts.begin(), 1u);
  EXPECT_EQ(*counts.rbegin(), kGroups);
}

TEST(Draws, EditsLeaveTheRestOfTheIncumbent) {
  const Actions incumbent(kGroups, space::ActionId(4));
  const Draws draws = draw_edits(random_log_probabilities(), incumbent, 400, Rng(1));
  std::set<std::size_t> lengths;
  for (std::size_t s = 0; s < draws.actions.size(); ++s) {
    ASSERT_EQ(draws.stretches[s].size(), 1u);
    const DrawnRun& stretch = draws.stretches[s][0];
    for (std::size_t n = 0; n < kGroups; ++n) {
      const bool inside = stretch.begin <= n && n < stretch.end;
      EXPECT_EQ(draws.actions[s][n], inside ? stretch.action : incumbent[n]);
    }
    lengths.insert(stretch.end - stretch.begin);
  }
  EXPECT_EQ(*lengths.begin(), 1u);
  EXPECT_EQ(*lengths.rbegin(), kGroups);
}

TEST(Draws, ActionsComeByTheMeanOfTheirGroups) {
  const auto log_p =
      torch::tensor({{0.8, 0.2, 0.0}, {0.0, 1.0, 0.0}}, torch::kFloat64).log().clamp_min(-1e9);
  std::array<int, 3> counts{};
  int whole = 0;
  const Draws draws = draw_edits(log_p, actions({0, 0}), 20000, Rng(2));
  for (const std::vector<DrawnRun>& stretches : draws.stretches) {
    if (stretches[0].end - stretches[0].begin < 2) continue;
    ++whole;
    ++counts[stretches[0].action.value()];
  }
  // Between 2^0 and 2^log2(3), two where it is at least 2.
  EXPECT_NEAR(whole, 20000 * (1 - 1 / std::log2(3)), 300);
  EXPECT_NEAR(counts[0], 0.4 * whole, 250);
  EXPECT_NEAR(counts[1], 0.6 * whole, 250);
  EXPECT_EQ(counts[2], 0);
}

TEST(Draws, ADrawDependsOnItsNumberNotOnHowManyThereAre) {
  const auto log_p = random_log_probabilities();
  const Draws few = draw_runs(log_p, 3, Rng(9)), many = draw_runs(log_p, 50, Rng(9));
  for (int s = 0; s < 3; ++s) EXPECT_EQ(few.stretches[s], many.stretches[s]);
  EXPECT_NE(draw_runs(log_p, 3, Rng(10)).stretches, few.stretches);
}

TEST(Draws, LikelihoodByHand) {
  const auto log_p =
      torch::log(torch::tensor({{0.5, 0.5}, {0.2, 0.8}, {0.9, 0.1}}, torch::kFloat64));
  const Draws draws{.actions = {actions({1, 1, 0}), actions({0, 1, 0})},
                    .stretches = {{{0, 2, space::ActionId(1)}, {2, 3, space::ActionId(0)}},
                                  {{1, 2, space::ActionId(1)}}}};
  const auto likelihood = log_likelihood(log_p, draws);
  EXPECT_NEAR(likelihood[0].item<double>(), (std::log(0.65) + std::log(0.9)) / 2, 1e-12);
  EXPECT_NEAR(likelihood[1].item<double>(), std::log(0.8), 1e-12);
  const auto by_group = log_likelihood(log_p, {.actions = draws.actions});
  EXPECT_NEAR(by_group[1].item<double>(), (std::log(0.5) + std::log(0.8) + std::log(0.9)) / 3,
              1e-12);
}

// Σ_a p(a) r(a) ∇ log p(a), by log_likelihood, is ∇ Σ_a p(a) r(a), by p written out.
TEST(Draws, TheirGradientIsThatOfTheExpectedReward) {
  torch::manual_seed(1);
  auto logits = torch::randn({3, 4}, torch::kFloat64).requires_grad_();
  const std::array<double, 4> reward = {-1.0, 0.5, 2.0, -0.25};
  const auto mean = [&] { return torch::softmax(logits, 1).slice(0, 0, 2).mean(0); };
  auto expected = torch::zeros({}, torch::kFloat64);
  for (int a = 0; a < 4; ++a) expected = expected + mean()[a] * reward[a];
  expected.backward();
  const auto wanted = logits.grad().clone();
  logits.mutable_grad().zero_();
  auto objective = torch::zeros({}, torch::kFloat64);
  for (std::size_t a = 0; a < 4; ++a) {
    const Draws draws{.actions = {actions({a, a, 0})}, .stretches = {{{0, 2, space::ActionId(a)}}}};
    const double weight = mean()[static_cast<std::int64_t>(a)].item<double>() * reward[a];
    objective = objective + weight * log_likelihood(torch::log_softmax(logits, 1), draws)[0];
  }
  objective.backward();
  EXPECT_LT((logits.grad() - wanted).abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace heterog::learn
