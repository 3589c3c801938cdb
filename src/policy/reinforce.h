// REINFORCE with a moving-average baseline and an entropy bonus (HeteroG §4.1.3).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "policy/config.h"
#include "policy/draws.h"

namespace heterog::policy {

// R̄ of one (graph, cluster, batch), and the moving variance that scales r − R̄.
struct RewardAverage {
  std::int64_t updates = 0;
  double mean = 0;
  double variance = 0;
  friend bool operator==(const RewardAverage&, const RewardAverage&) = default;
};

// The average after one more step's rewards; the first step sets it.
RewardAverage updated(const RewardAverage& average, std::span<const double> rewards, double decay);

// r − R̄ of each reward, divided by the moving standard deviation and cut, as the config says. R̄
// includes this step, so that a constant reward has no advantage.
std::vector<double> advantages(std::span<const double> rewards, const RewardAverage& average,
                               const TrainConfig& config);
// r − the mean of the other rewards, at least two, scaled in the same way: what an average of all
// steps knows too late, while the policy moves (Kool, van Hoof and Welling 2019).
std::vector<double> advantages_over_others(std::span<const double> rewards,
                                           const RewardAverage& average, const TrainConfig& config);
// r − `reward`, scaled in the same way: what an edit is worth.
std::vector<double> advantages_over(double reward, std::span<const double> rewards,
                                    const RewardAverage& average, const TrainConfig& config);

// What one case contributes to a step.
struct CaseLossInput {
  torch::Tensor log_probabilities;  // [N, A]
  Draws draws;                      // S
  std::vector<double> advantages;   // S
  std::vector<Actions> elites;      // imitated; may be empty
  // A teacher's actions, and how much each group counts (N, together 1); both may be empty.
  Actions lesson;
  std::vector<double> lesson_weights;
  // Logits of the schedule [kAllOptions], and those of the elites. Undefined: nothing is learnt of
  // schedules.
  torch::Tensor schedule = {};
  std::vector<ScheduleDraw> elite_schedules = {};
  // log π of each draw when it was drawn, S, for a further pass over the same draws: the objective
  // is then PPO's with its ratio held to 1 ± clip. Undefined in the first pass.
  torch::Tensor before = {};
  double clip = 0;
};
struct CaseLoss {
  torch::Tensor loss;     // scalar, to be minimised
  torch::Tensor entropy;  // scalar, nats a group
  torch::Tensor lesson;   // scalar: mean log π of the lesson, undefined without one
};

// log π of each draw, with its schedule.  [S]
torch::Tensor log_likelihood(const CaseLossInput& input);

// What imitation adds to the objective, times the mean log π of what is imitated.
struct ImitationWeights {
  double elites = 0;
  double lesson = 0;
};

// What the objective loses where the entropy, in nats a group, is below a floor.
struct EntropyFloor {
  double floor = 0;
  double weight = 0;
};

// −(mean over draws of (r − R̄) · log π(a) + λ H − weight · max(floor − H, 0) + weight · mean over
// elites of log π(a) + weight · log π of the lesson), log π and H both per group. In a further pass
// min(ρ (r − R̄), clamp(ρ, 1 ± clip) (r − R̄)), ρ = π(a) / π(a) when drawn, in place of the first
// term (Schulman et al. 2017, equation 7); where ρ = 1 their gradients are the same. A step over
// |G| cases averages this: minus its gradient is 1/|G| Σ ∇log π(a_g)(r_g − R_g) + λ∇H. Where
// schedules are learnt, log π of a strategy has that of its schedule added, and H and its floor
// count once more for the schedule, in nats a decision.
CaseLoss case_loss(const CaseLossInput& input, double entropy_weight,
                   const ImitationWeights& imitation, const EntropyFloor& floor = {});

// λ at `step` of `steps`: linear from the first value to the last.
double entropy_weight_at(const TrainConfig& config, std::int64_t step);

}  // namespace heterog::policy
