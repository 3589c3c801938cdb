// Logits of the actions of every group (HeteroG §4.1.2).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "learn/network/encoder.h"
#include "learn/network/pair_scorer.h"

namespace heterog::learn {

struct ActionHeadOptions {
  std::int64_t group_width = 0;  // columns of the Transformer-XL's output
  std::int64_t width = 0;        // hidden
  double data_parallel_prior = 0;
};

class DeviceHeadImpl : public torch::nn::Module {
 public:
  explicit DeviceHeadImpl(const ActionHeadOptions& options);
  // logit_na = score_na + prior_a.  [N, group width] → [N, A]
  torch::Tensor forward(const torch::Tensor& groups, const learn::FeatureTensors& features);

 private:
  ActionHeadOptions options_;
  PairScorer pairs_;
};
TORCH_MODULE(DeviceHead);

// HeteroG's own head: one output a device by position, and four.
class FixedHeadImpl : public torch::nn::Module {
 public:
  FixedHeadImpl(const ActionHeadOptions& options, std::int64_t devices);
  // [N, group width] → [N, M + 4]
  torch::Tensor forward(const torch::Tensor& groups);

 private:
  ActionHeadOptions options_;
  torch::nn::Linear score_;
};
TORCH_MODULE(FixedHead);

// `prior` for the four actions on all devices that every table has, 0 for the others.  [A]
torch::Tensor data_parallel_bias(std::int64_t devices, std::int64_t actions, double prior,
                                 const torch::TensorOptions& options);

}  // namespace heterog::learn
