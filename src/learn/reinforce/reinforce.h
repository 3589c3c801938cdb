// REINFORCE with a moving-average baseline and an entropy bonus (HeteroG §4.1.3).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "learn/config.h"
#include "learn/drawing/draws.h"

namespace heterog::learn {

// R̄ of one (graph, cluster, batch), and the moving variance that scales r − R̄.
struct RewardAverage {
  std::int64_t updates = 0;
  double mean = 0;
  double variance = 0;
  friend bool operator==(const RewardAverage&, const RewardAverage&) = default;
};

// The average after one more step's rewards, which count for a tenth; the first step sets it.
RewardAverage updated(const RewardAverage& average, std::span<const double> rewards);

// r − R̄ of each reward, divided by the moving standard deviation and cut at three of these, where
// the config says so. R̄
// includes this step, so that a constant reward has no advantage.
std::vector<double> advantages(std::span<const double> rewards, const RewardAverage& average,
                               const TrainConfig& config);
// r − `reward`, scaled in the same way: what an edit is worth.
std::vector<double> advantages_over(double reward, std::span<const double> rewards,
                                    const RewardAverage& average, const TrainConfig& config);

// The input of one case's loss in a step.
struct CaseLossInput {
  torch::Tensor log_probabilities;  // [N, A]
  Draws draws;                      // S
  std::vector<double> advantages;   // S
  Actions elite;                    // imitated; may be empty
  // A teacher's actions, and how much each group counts (N, together 1); both may be empty.
  Actions lesson;
  std::vector<double> lesson_weights;
};
struct CaseLoss {
  torch::Tensor loss;     // scalar, to be minimised
  torch::Tensor entropy;  // scalar, nats a group
};

// λ, and what else the objective weighs.
struct LossWeights {
  double entropy = 0;
  double elite = 0;
  double entropy_floor = 0;  // nats a group; 0: none
};

// −(mean over draws of (r − R̄) · log π(a) + λ H − max(floor − H, 0) + weight · log π of the elite +
// log π of the lesson), log π and H both per group. A step over |G| cases averages this: minus its
// gradient is 1/|G| Σ ∇log π(a_g)(r_g − R_g) + λ∇H.
CaseLoss case_loss(const CaseLossInput& input, const LossWeights& weights);

// λ at `step` of `steps`: linear from the first value to the last.
double entropy_weight_at(const TrainConfig& config, std::int64_t step);

}  // namespace heterog::learn
