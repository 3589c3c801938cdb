// Logits of the actions of every group (HeteroG §4.1.2).
#include "learn/network/action_head.h"

#include <torch/torch.h>

#include "space/action_space.h"

namespace heterog::learn {
namespace {

// Rows of the table of actions that are not a single device.
constexpr auto kReplicated = static_cast<std::int64_t>(space::kReplicated.size());

// Small enough that the logits begin at the prior: exploration is then even among equals.
constexpr double kScoreScale = 0.1;

}  // namespace

torch::Tensor data_parallel_bias(std::int64_t devices, std::int64_t actions, double prior,
                                 const torch::TensorOptions& options) {
  return torch::cat({torch::zeros({devices}, options), torch::full({kReplicated}, prior, options),
                     torch::zeros({actions - devices - kReplicated}, options)});
}

DeviceHeadImpl::DeviceHeadImpl(const ActionHeadOptions& options)
    : options_(options),
      pairs_(
          register_module("pairs", PairScorer(options.group_width, options.width, kScoreScale))) {}

torch::Tensor DeviceHeadImpl::forward(const torch::Tensor& groups,
                                      const learn::FeatureTensors& features) {
  const auto scores = pairs_(groups, features);
  return scores + data_parallel_bias(features.devices.size(0), scores.size(1),
                                     options_.data_parallel_prior, scores.options());
}

FixedHeadImpl::FixedHeadImpl(const ActionHeadOptions& options, std::int64_t devices)
    : options_(options),
      score_(
          register_module("score", torch::nn::Linear(options.group_width, devices + kReplicated))) {
  begin_at(score_, kScoreScale);
}

torch::Tensor FixedHeadImpl::forward(const torch::Tensor& groups) {
  const auto logits = score_(groups);
  return logits + data_parallel_bias(logits.size(1) - kReplicated, logits.size(1),
                                     options_.data_parallel_prior, logits.options());
}

}  // namespace heterog::learn
