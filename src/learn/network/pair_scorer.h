// Scores of (group, row) pairs by what the group, the devices and the pair are like, so that the
// same weights serve any number of devices.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "learn/network/encoder.h"

namespace heterog::learn {

class PairScorerImpl : public torch::nn::Module {
 public:
  // `group_width`: columns of the Transformer-XL's output; `width`: hidden. All scores begin at
  // `scale` times what random weights say; at 0, at 0.
  PairScorerImpl(std::int64_t group_width, std::int64_t width, double scale);
  // score_na = w · σ(W_g x_n + d_a + W_p p_na), σ = ELU, where d_a is W_d times the mean features
  // of the devices that take part, plus a learnt vector of the row's scheme. [N, group width] → [N,
  // A]
  torch::Tensor forward(const torch::Tensor& groups, const FeatureTensors& features);

 private:
  torch::nn::Linear group_, device_, pair_, score_;
  torch::Tensor schemes_;  // [schemes, width]
};
TORCH_MODULE(PairScorer);

// Its weights times `scale`, no bias: what it says begins small, or as nothing.
void begin_at(torch::nn::Linear& linear, double scale);

}  // namespace heterog::learn
