// REINFORCE with a moving-average baseline and an entropy bonus (HeteroG §4.1.3).
#include "policy/reinforce.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "policy/schedule/schedule_head.h"

namespace heterog::policy {
namespace {

// Divided by the moving standard deviation and cut, as the config says.
double scaled(double advantage, const RewardAverage& average, const TrainConfig& config) {
  if (!config.normalize_advantage) return advantage;
  return std::clamp(advantage / (std::sqrt(average.variance) + 1e-6), -config.advantage_clip,
                    config.advantage_clip);
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
  return advantages_over(average.mean, rewards, average, config);
}

std::vector<double> advantages_over(double reward, std::span<const double> rewards,
                                    const RewardAverage& average, const TrainConfig& config) {
  std::vector<double> result;
  for (double r : rewards) result.push_back(scaled(r - reward, average, config));
  return result;
}

std::vector<double> advantages_over_others(std::span<const double> rewards,
                                           const RewardAverage& average,
                                           const TrainConfig& config) {
  EXPECT(rewards.size() > 1);
  const double sum = std::accumulate(rewards.begin(), rewards.end(), 0.0);
  const double others = static_cast<double>(rewards.size() - 1);
  std::vector<double> result;
  for (double r : rewards) result.push_back(scaled(r - (sum - r) / others, average, config));
  return result;
}

torch::Tensor log_likelihood(const CaseLossInput& input) {
  const auto of_actions = log_likelihood(input.log_probabilities, input.draws);
  if (!input.schedule.defined()) return of_actions;
  return of_actions + schedule_log_likelihood(input.schedule, input.draws.schedules);
}

CaseLoss case_loss(const CaseLossInput& input, double entropy_weight,
                   const ImitationWeights& imitation, const EntropyFloor& floor) {
  const auto& log_p = input.log_probabilities;
  // Masked actions have log π = −1e9 and π = 0; the product stays finite.
  const auto entropy = -(log_p.exp() * log_p).sum(1).mean();
  const auto worth_of = [&](const torch::Tensor& nats) {
    const torch::Tensor worth = entropy_weight * nats;
    return floor.floor > 0 ? worth - floor.weight * (floor.floor - nats).clamp_min(0) : worth;
  };
  torch::Tensor objective = worth_of(entropy);
  if (input.schedule.defined()) objective = objective + worth_of(schedule_entropy(input.schedule));
  if (!input.draws.actions.empty()) {
    const auto advantage = torch::tensor(input.advantages, torch::kFloat64).to(log_p.dtype());
    const auto likelihood = log_likelihood(input);
    auto gain = advantage * likelihood;
    if (input.before.defined()) {
      const auto ratio = (likelihood - input.before).exp();
      gain = torch::minimum(ratio * advantage,
                            ratio.clamp(1 - input.clip, 1 + input.clip) * advantage);
    }
    objective = objective + gain.mean();
  }
  if (!input.elites.empty() && imitation.elites > 0) {
    objective =
        objective + imitation.elites * log_likelihood(log_p, {.actions = input.elites}).mean();
    if (input.schedule.defined()) {
      objective =
          objective +
          imitation.elites * schedule_log_likelihood(input.schedule, input.elite_schedules).mean();
    }
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
