// The head of the policy that begins as the formula: what a network adds to the formula's terms,
// and how likely it finds each value of a plan's knobs.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "learn/formula/formula_output.h"
#include "learn/network/encoder.h"
#include "learn/network/pair_scorer.h"

namespace heterog::learn {

struct FormulaHeadOptions {
  std::int64_t group_width = 0;  // columns of the Transformer-XL's output
  std::int64_t width = 0;        // hidden
};

class FormulaHeadImpl : public torch::nn::Module {
 public:
  explicit FormulaHeadImpl(const FormulaHeadOptions& options);
  // [N, group width]. The last layers begin as zero, so that the first answer is the formula's.
  FormulaOutput forward(const torch::Tensor& groups, const FeatureTensors& features);

 private:
  PairScorer pairs_;
  torch::nn::Linear scales_;  // a group's unhidden, moving, change
  torch::nn::Linear layout_;  // a layout by its features
  torch::nn::Linear knobs_;   // its score, and the other knobs beside it
  torch::Tensor sharpness_;   // scalar
};
TORCH_MODULE(FormulaHead);

}  // namespace heterog::learn
