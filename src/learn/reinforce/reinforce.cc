// REINFORCE with a moving-average baseline and an entropy bonus (HeteroG §4.1.3).
#include "learn/reinforce/reinforce.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

namespace heterog::learn {
namespace {

constexpr double kDecay = 0.9;  // of the moving averages of rewards
constexpr double kClip = 3.0;   // of advantages, in standard deviations

// Divided by the moving standard deviation and cut, where the config says so.
double scaled(double advantage, const RewardAverage& average, const TrainConfig& config) {
  if (!config.normalize_advantage) return advantage;
  return std::clamp(advantage / (std::sqrt(average.variance) + 1e-6), -kClip, kClip);
}

}  // namespace

RewardAverage updated(const RewardAverage& average, std::span<const double> rewards) {
  double mean = 0;
  double variance = 0;
  for (double r : rewards) mean += r / static_cast<double>(rewards.size());
  for (double r : rewards)
    variance += (r - mean) * (r - mean) / static_cast<double>(rewards.size());
  if (average.updates == 0) return {.updates = 1, .mean = mean, .variance = variance};
  return {.updates = average.updates + 1,
          .mean = kDecay * average.mean + (1 - kDecay) * mean,
          .variance = kDecay * average.variance + (1 - kDecay) * variance};
}

std::vector<double> advantages(std::span<const double> rewards, const RewardAverage& average,
                               const TrainConfig& config) {
  return advantages_over(average.mean, rewards, average, config);
}

std::vector<double> advantages_over(double reward, std::span<const double> rewards,
                                    const RewardAverage& average, const TrainConfig& config) {
  std::vector<double> result;
  for (double r : rewards) result.push_back(scaled(r - reward, average, config));
  return result;
}

CaseLoss case_loss(const CaseLossInput& input, const LossWeights& weights) {
  const auto& log_p = input.log_probabilities;
  // Masked actions have log π = −1e9 and π = 0; the product stays finite.
  const auto entropy = -(log_p.exp() * log_p).sum(1).mean();
  torch::Tensor objective = weights.entropy * entropy;
  if (weights.entropy_floor > 0) {
    objective = objective - (weights.entropy_floor - entropy).clamp_min(0);
  }
  if (!input.draws.actions.empty()) {
    const auto advantage = torch::tensor(input.advantages, torch::kFloat64).to(log_p.dtype());
    objective = objective + (advantage * log_likelihood(log_p, input.draws)).mean();
  }
  if (!input.elite.empty() && weights.elite > 0) {
    objective =
        objective + weights.elite * log_likelihood(log_p, {.actions = {input.elite}}).mean();
  }
  if (!input.lesson.empty()) {
    const auto parts = torch::tensor(input.lesson_weights, torch::kFloat64).to(log_p.dtype());
    const auto chosen = log_p.gather(1, to_tensor({input.lesson}).t()).squeeze(1);  // [N]
    objective = objective + (parts * chosen).sum();
  }
  return {.loss = -objective, .entropy = entropy};
}

double entropy_weight_at(const TrainConfig& config, std::int64_t step) {
  const double done = std::min(1.0, static_cast<double>(step) / static_cast<double>(config.steps));
  return config.entropy_weight + (config.entropy_weight_end - config.entropy_weight) * done;
}

}  // namespace heterog::learn
