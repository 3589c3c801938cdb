// REINFORCE with a moving-average baseline and an entropy bonus (HeteroG §4.1.3).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "learn/config.h"
#include "learn/drawing/draws.h"
#include "learn/formula/terms.h"
#include "learn/network/network.h"

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

// What each draw adds to the best of a few: the mean, over sets of `others` other draws, of what
// its reward is above the best of the set; 0 where it is below. Whoever asks the policy takes the
// best of several plans, and with draws held against the mean of the others (`others` 1) it soon
// says the same plan over and over. The set knows nothing of the draw, so it is a baseline (leave
// one out; Kool et al. 2019). Divided by the root of their mean square and cut at three of these.
std::vector<double> advantages_over_others(std::span<const double> rewards, std::size_t others);

// The input of one case's loss in a step.
struct CaseLossInput {
  Said said;
  const FormulaTerms* formula = nullptr;  // of a policy that begins as the formula
  Draws draws;                            // S
  std::vector<double> advantages;         // S
  Actions elite;                          // imitated; may be empty
};
struct CaseLoss {
  torch::Tensor loss;     // scalar, to be minimised
  torch::Tensor entropy;  // scalar, nats a group; of the formula's policy, nats of all knobs
};

// λ, and what else the objective weighs.
struct LossWeights {
  double entropy = 0;
  double elite = 0;
  double entropy_floor = 0;  // nats a group; 0: none
};

// −(mean over draws of (r − R̄) · log π(a) + λ H − max(floor − H, 0) + weight · log π of the elite),
// log π and H both per group; of the formula's policy, of the whole plan and of all knobs. A step
// over |G| cases averages this: minus its gradient is 1/|G| Σ ∇log π(a_g)(r_g − R_g) + λ∇H.
CaseLoss case_loss(const CaseLossInput& input, const LossWeights& weights);

// λ at `step` of `steps`: linear from the first value to the last.
double entropy_weight_at(const TrainConfig& config, std::int64_t step);

}  // namespace heterog::learn
