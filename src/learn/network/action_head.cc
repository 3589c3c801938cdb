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

void shrink(torch::nn::Linear& linear) {
  torch::NoGradGuard no_grad;
  linear->weight.mul_(kScoreScale);
  linear->bias.zero_();
}

}  // namespace

torch::Tensor data_parallel_bias(std::int64_t devices, std::int64_t actions, double prior,
                                 const torch::TensorOptions& options) {
  return torch::cat({torch::zeros({devices}, options), torch::full({kReplicated}, prior, options),
                     torch::zeros({actions - devices - kReplicated}, options)});
}

DeviceHeadImpl::DeviceHeadImpl(const ActionHeadOptions& options)
    : options_(options),
      group_(register_module("group", torch::nn::Linear(options.group_width, options.width))),
      device_(register_module(
          "device",
          torch::nn::Linear(learn::feature_count(learn::Subject::kDevice), options.width))),
      pair_(register_module(
          "pair", torch::nn::Linear(learn::feature_count(learn::Subject::kAction), options.width))),
      score_(register_module("score", torch::nn::Linear(options.width, 1))),
      schemes_(
          register_parameter("schemes", 0.1 * torch::randn({learn::kSchemes, options.width}))) {
  shrink(score_);
}

torch::Tensor DeviceHeadImpl::forward(const torch::Tensor& groups,
                                      const learn::FeatureTensors& features) {
  const auto actions = features.members.matmul(device_(features.devices)) +
                       schemes_.index_select(0, features.scheme);  // [A, width]
  const auto pairs = pair_(features.actions);                      // [N, A, width]
  const auto hidden = torch::elu(group_(groups).unsqueeze(1) + actions.unsqueeze(0) + pairs);
  return score_(hidden).squeeze(-1) + data_parallel_bias(features.devices.size(0), actions.size(0),
                                                         options_.data_parallel_prior,
                                                         hidden.options());
}

FixedHeadImpl::FixedHeadImpl(const ActionHeadOptions& options, std::int64_t devices)
    : options_(options),
      score_(
          register_module("score", torch::nn::Linear(options.group_width, devices + kReplicated))) {
  shrink(score_);
}

torch::Tensor FixedHeadImpl::forward(const torch::Tensor& groups) {
  const auto logits = score_(groups);
  return logits + data_parallel_bias(logits.size(1) - kReplicated, logits.size(1),
                                     options_.data_parallel_prior, logits.options());
}

}  // namespace heterog::learn
