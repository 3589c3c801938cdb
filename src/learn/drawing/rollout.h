// Draws many strategies from one forward pass.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "space/action_space.h"

namespace heterog::learn {

using Actions = std::vector<space::ActionId>;  // one action a group

// Sample s draws every group's action from π by inverting its cumulative distribution with numbers
// of rng.split(s): it depends on (rng, s) alone.  log_probabilities [N, A]
std::vector<Actions> sample_actions(const torch::Tensor& log_probabilities, std::int64_t samples,
                                    const Rng& rng);

// Every group's most likely action.
Actions most_likely(const torch::Tensor& log_probabilities);

// [samples, N] int64.
torch::Tensor to_tensor(const std::vector<Actions>& actions);

}  // namespace heterog::learn
