// The policy gradient against its formula, and the moving average by hand.
#include "learn/reinforce/reinforce.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "learn/drawing/actions.h"

namespace heterog::learn {
namespace {

TEST(Reinforce, MovingAverageByHand) {
  const RewardAverage first = updated({}, std::vector<double>{-1, -3});
  EXPECT_EQ(first, (RewardAverage{1, -2, 1}));  // mean −2, variance 1
  const RewardAverage second = updated(first, std::vector<double>{-7, -7});
  EXPECT_EQ(second.updates, 2);
  EXPECT_NEAR(second.mean, -2.5, 1e-12);  // 0.9 · −2 + 0.1 · −7
  EXPECT_NEAR(second.variance, 0.9, 1e-12);
}

TEST(Reinforce, AdvantagesAreScaledAndCutOnRequest) {
  TrainConfig config;
  const RewardAverage average{4, -2, 4};
  config.normalize_advantage = false;
  EXPECT_EQ(advantages(std::vector<double>{-1, -32}, average, config),
            (std::vector<double>{1, -30}));
  config.normalize_advantage = true;
  const auto scaled = advantages(std::vector<double>{-1, -32}, average, config);
  EXPECT_NEAR(scaled[0], 0.5, 1e-5);  // (−1 + 2) / √4
  EXPECT_EQ(scaled[1], -3);
}

TEST(Reinforce, AnEditIsWorthWhatItChanges) {
  TrainConfig config;
  config.normalize_advantage = false;
  EXPECT_EQ(advantages_over(-2, std::vector<double>{-1, -3}, {}, config),
            (std::vector<double>{1, -1}));
}

TEST(Reinforce, EntropyBelowItsFloorIsALoss) {
  const auto log_p = torch::log(torch::tensor({{0.5, 0.5}}, torch::kFloat64));
  const CaseLossInput input{.said = {.log_probabilities = log_p, .formula = std::nullopt}};
  EXPECT_NEAR(case_loss(input, {.entropy_floor = 1}).loss.item<double>(), 1 - std::log(2), 1e-12);
  EXPECT_EQ(case_loss(input, {.entropy_floor = 0.5}).loss.item<double>(), 0);
}

// Of softmax logits, ∂ log π(a) / ∂ logit_b = [a = b] − π(b): the gradient written out.
TEST(Reinforce, GradientIsTheFormula) {
  torch::manual_seed(1);
  auto logits = torch::randn({2, 3}, torch::kFloat64).requires_grad_();
  const std::vector<Actions> samples = {actions({0, 2}), actions({1, 1}), actions({2, 2})};
  const std::vector<double> advantage = {1.5, -0.5, 0.25};
  case_loss({.said = {.log_probabilities = torch::log_softmax(logits, 1), .formula = std::nullopt},
             .draws = {samples},
             .advantages = advantage,
             .elite = {}},
            {})
      .loss.backward();
  const auto p = torch::softmax(logits.detach(), 1);
  auto expected = torch::zeros({2, 3}, torch::kFloat64);
  for (int s = 0; s < 3; ++s) {
    for (int n = 0; n < 2; ++n) {
      for (int b = 0; b < 3; ++b) {
        const double indicator = samples[s][n].value() == static_cast<std::uint32_t>(b);
        // mean over 3 samples and 2 groups; the loss is minus the objective
        expected[n][b] -= advantage[s] * (indicator - p[n][b]) / 6;
      }
    }
  }
  EXPECT_LT((logits.grad() - expected).abs().max().item<double>(), 1e-12);
}

TEST(Reinforce, EntropyAndAnElite) {
  const auto log_p = torch::log(torch::tensor({{0.5, 0.5}, {0.5, 0.5}}, torch::kFloat64));
  const CaseLoss loss = case_loss({.said = {.log_probabilities = log_p, .formula = std::nullopt},
                                   .draws = {{actions({0, 0})}},
                                   .advantages = {0.0},
                                   .elite = actions({1, 1})},
                                  {.entropy = 0.1, .elite = 2.0});
  EXPECT_NEAR(loss.entropy.item<double>(), std::log(2), 1e-12);
  // −(0.1 · ln 2 + 2 · (−ln 2))
  EXPECT_NEAR(loss.loss.item<double>(), 1.9 * std::log(2), 1e-12);
}

// Against every set of others, one by one.
TEST(Reinforce, ADrawIsWorthWhatItAddsToTheBestOfAFew) {
  const std::vector<double> rewards = {1, 2, 6, 2.5, -4};
  std::vector<double> apart;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    double sum = 0;
    int sets = 0;
    for (std::size_t a = 0; a < rewards.size(); ++a) {
      for (std::size_t b = a + 1; b < rewards.size(); ++b) {
        if (a == i || b == i) continue;
        ++sets;
        sum += std::max(0.0, rewards[i] - std::max(rewards[a], rewards[b]));
      }
    }
    apart.push_back(sum / sets);
  }
  double squares = 0;
  for (const double one : apart) squares += one * one;
  const double deviation = std::sqrt(squares / 5) + 0.02;
  const std::vector<double> found = advantages_over_others(rewards, 2);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(found[i], std::min(3.0, apart[i] / deviation), 1e-12) << i;
  }
  EXPECT_EQ(advantages_over_others(std::vector<double>{5}, 1), std::vector<double>{0});
}

TEST(Reinforce, MaskedActionsDoNotSpoilTheEntropy) {
  auto logits = torch::zeros({1, 3}).requires_grad_();
  const auto masked = logits.masked_fill(torch::tensor({{false, false, true}}), -1e9);
  const CaseLoss loss = case_loss(
      {.said = {.log_probabilities = torch::log_softmax(masked, 1), .formula = std::nullopt},
       .draws = {{actions({0})}},
       .advantages = {1.0},
       .elite = {}},
      {.entropy = 1});
  EXPECT_NEAR(loss.entropy.item<double>(), std::log(2), 1e-6);
  loss.loss.backward();
  EXPECT_TRUE(torch::isfinite(logits.grad()).all().item<bool>());
}

TEST(Reinforce, EntropyWeightFallsLinearly) {
  TrainConfig config;
  config.steps = 100;
  config.entropy_weight = 0.3;
  config.entropy_weight_end = 0.1;
  EXPECT_NEAR(entropy_weight_at(config, 0), 0.3, 1e-12);
  EXPECT_NEAR(entropy_weight_at(config, 50), 0.2, 1e-12);
  EXPECT_NEAR(entropy_weight_at(config, 100), 0.1, 1e-12);
}

}  // namespace
}  // namespace heterog::learn
