// REINFORCE with a moving-average baseline and an entropy bonus (HeteroG §4.1.3).
#include "policy/reinforce.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

namespace heterog::policy {
namespace {

// log π(a) a group of each row of `actions`.  [S, N] → [S]
torch::Tensor log_likelihood(const torch::Tensor& log_probabilities,
                             const std::vector<Actions>& actions) {
  // log π of row s, group n is log_probabilities[n][a_sn]: gather over the transposed actions.
  return log_probabilities.gather(1, to_tensor(actions).t()).mean(0);
}

}  // namespace

RewardAverage updated(const RewardAverage& average, std::span<const double> rewards, double decay) {
  double mean = 0;
  double variance = 0;
  for (double r : rewards) mean += r / static_cast<double>(rewards.size());
  for (double r : rewards)
    variance += (r - mean) * (r - mean) / static_cast<double>(rewards.size());
  if (average.updates == 0) return {.updates = 1, .mean = mean, .variance = variance};
  return {.updates = average.updates + 1,
          .mean = decay * average.mean + (1 - decay) * mean,
          .variance = decay * average.variance + (1 - decay) * variance};
}

std::vector<double> advantages(std::span<const double> rewards, const RewardAverage& average,
                               const TrainConfig& config) {
  std::vector<double> result;
  const double scale = config.normalize_advantage ? std::sqrt(average.variance) + 1e-6 : 1.0;
  for (double r : rewards) {
    const double advantage = (r - average.mean) / scale;
    result.push_back(config.normalize_advantage
                         ? std::clamp(advantage, -config.advantage_clip, config.advantage_clip)
                         : advantage);
  }
  return result;
}

CaseLoss case_loss(const CaseLossInput& input, double entropy_weight,
                   const ImitationWeights& imitation) {
  const auto& log_p = input.log_probabilities;
  // Masked actions have log π = −1e9 and π = 0; the product stays finite.
  const auto entropy = -(log_p.exp() * log_p).sum(1).mean();
  torch::Tensor objective = entropy_weight * entropy;
  if (!input.samples.empty()) {
    const auto advantage = torch::tensor(input.advantages, torch::kFloat64).to(log_p.dtype());
    objective = objective + (advantage * log_likelihood(log_p, input.samples)).mean();
  }
  if (!input.elites.empty() && imitation.elites > 0) {
    objective = objective + imitation.elites * log_likelihood(log_p, input.elites).mean();
  }
  torch::Tensor lesson;
  if (!input.lesson.empty() && imitation.lesson > 0) {
    const auto weights = torch::tensor(input.lesson_weights, torch::kFloat64).to(log_p.dtype());
    const auto chosen = log_p.gather(1, to_tensor({input.lesson}).t()).squeeze(1);  // [N]
    lesson = (weights * chosen).sum();
    objective = objective + imitation.lesson * lesson;
  }
  return {.loss = -objective, .entropy = entropy, .lesson = lesson};
}

double entropy_weight_at(const TrainConfig& config, std::int64_t step) {
  const double done = std::min(1.0, static_cast<double>(step) / static_cast<double>(config.steps));
  return config.entropy_weight + (config.entropy_weight_end - config.entropy_weight) * done;
}

}  // namespace heterog::policy
