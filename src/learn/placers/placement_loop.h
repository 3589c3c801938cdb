// What all placers have in common: their loss, and the best of what they drew.
#pragma once

#include <torch/types.h>

#include <span>

#include "learn/placers/placer.h"

namespace heterog::learn {

// To be minimised. REINFORCE: −mean over draws of advantage · log π, π a decision; PPO: −mean of
// min(ρ · advantage, clipped ρ · advantage) over decisions, ρ the ratio to `before`, their
// probability when they were drawn. Both less `entropy_weight` · H.
torch::Tensor placer_loss(const Likelihood& now, const torch::Tensor& before,
                          std::span<const double> advantages, const Rule& rule,
                          double entropy_weight);

}  // namespace heterog::learn
