// REINFORCE with a moving-average baseline and an entropy bonus (HeteroG §4.1.3).
#include "learn/reinforce/reinforce.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "learn/formula/distribution.h"

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

std::vector<double> advantages_over_others(std::span<const double> rewards, std::size_t others) {
  const std::size_t count = rewards.size();
  std::vector<double> result(count, 0.0);
  if (count <= others) return result;
  // How likely the j-th of the others, from the least on, is the best of a set: C(j, others − 1) of
  // C(count − 1, others).
  std::vector<double> best(count - 1, 0.0);
  double sum = 0;
  for (std::size_t j = others - 1; j < best.size(); ++j) {
    best[j] = j == others - 1
                  ? 1
                  : best[j - 1] * static_cast<double>(j) / static_cast<double>(j - others + 1);
    sum += best[j];
  }
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> rest(rewards.begin(), rewards.end());
    rest.erase(rest.begin() + static_cast<long>(i));
    std::ranges::sort(rest);
    for (std::size_t j = 0; j < rest.size(); ++j) {
      result[i] += best[j] / sum * std::max(0.0, rewards[i] - rest[j]);
    }
    squares += result[i] * result[i];
  }
  // Draws that differ by less than a few percent of a step are hardly told apart.
  constexpr double kLeastDeviation = 0.02;
  const double deviation = std::sqrt(squares / static_cast<double>(count)) + kLeastDeviation;
  for (double& advantage : result) advantage = std::clamp(advantage / deviation, -kClip, kClip);
  return result;
}

namespace {

// The same objective over whole plans: log π is that of all knobs and of the path.
CaseLoss formula_loss(const CaseLossInput& input, const LossWeights& weights) {
  const FormulaTerms& terms = *input.formula;
  const FormulaOutput& output = *input.said.formula;
  const auto entropy = knob_entropy(terms, output);
  torch::Tensor objective = weights.entropy * entropy;
  if (weights.entropy_floor > 0) {
    objective = objective - (weights.entropy_floor - entropy).clamp_min(0);
  }
  std::vector<DrawnPlan> plans;
  std::vector<double> each;
  const double draws = static_cast<double>(std::max<std::size_t>(1, input.draws.actions.size()));
  for (std::size_t s = 0; s < input.draws.actions.size(); ++s) {
    plans.push_back(to_plan(terms, input.draws.actions[s]));
    each.push_back(input.advantages[s] / draws);
  }
  if (!input.elite.empty() && weights.elite > 0) {
    plans.push_back(to_plan(terms, input.elite));
    each.push_back(weights.elite);
  }
  objective = objective + weighted_log_likelihood(terms, output, plans, each);
  return {.loss = -objective, .entropy = entropy};
}

}  // namespace

CaseLoss case_loss(const CaseLossInput& input, const LossWeights& weights) {
  if (input.formula != nullptr) return formula_loss(input, weights);
  const auto& log_p = input.said.log_probabilities;
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
  return {.loss = -objective, .entropy = entropy};
}

double entropy_weight_at(const TrainConfig& config, std::int64_t step) {
  const double done = std::min(1.0, static_cast<double>(step) / static_cast<double>(config.steps));
  return config.entropy_weight + (config.entropy_weight_end - config.entropy_weight) * done;
}

}  // namespace heterog::learn
