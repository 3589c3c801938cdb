// Decoding: from what the network expects of each group to one strategy.
#pragma once

#include <torch/types.h>

#include <array>
#include <vector>

#include "base/rng.h"
#include "learn/drawing/rollout.h"

namespace heterog::learn {

// The actions that maximise Σ_n N w_n log π(a_n) − switch_cost · (neighbours in topological order
// whose actions differ): the network judges each group by itself, but slices that differ from group
// to group have to be moved. 0: the most likely action of each. The greater the cost, the fewer and
// longer the stretches of one action; without end, one for the whole model. By Viterbi's dynamic
// program, N · A steps; ties: the first action.
//   log_probabilities [N, A]; `weights`: N, together 1 (Case::group_weights)
Actions decode(const torch::Tensor& log_probabilities, const std::vector<double>& weights,
               double switch_cost);

// A draw: the same of log π plus Gumbel noise, with which each group by itself would be drawn as π
// says (perturb and maximise).
Actions decode_draw(const torch::Tensor& log_probabilities, const std::vector<double>& weights,
                    double switch_cost, Rng rng);

// Costs of a change of action, a proposal each: the first is that of the most likely strategy, the
// next ones are finer. The zoo's models on heterog-8gpu are fastest as they are in long stretches
// (docs/policy.md).
inline constexpr std::array<double, 5> kSwitchCosts = {32, 8, 2, 0.5, 0};

// The strategies that a policy proposes without drawing, distinct or not: the most likely strategy
// first, then finer ones.
std::vector<Actions> decode_proposals(const torch::Tensor& log_probabilities,
                                      const std::vector<double>& weights);

}  // namespace heterog::learn
