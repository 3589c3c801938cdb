// The whole policy network: encoder, Transformer-XL, action head (HeteroG Fig. 6).
#include "learn/network/network.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

namespace heterog::learn {
namespace {

constexpr double kMasked = -1e9;

std::mutex& making_weights() {
  static std::mutex making;
  return making;
}

}  // namespace

PolicyNetworkImpl::PolicyNetworkImpl(const TrainConfig& config)
    : encoder_(
          register_module("encoder", learn::GraphEncoder(learn::GraphEncoderOptions{
                                         .op_features = learn::feature_count(learn::Subject::kOp),
                                         .layers = config.gat_layers,
                                         .heads = config.gat_heads,
                                         .head_width = config.gat_head_width}))),
      group_(register_module(
          "group",
          torch::nn::Linear(encoder_->width() + learn::feature_count(learn::Subject::kGroup),
                            config.txl_width))),
      device_(register_module(
          "device",
          torch::nn::Linear(learn::feature_count(learn::Subject::kDevice), config.txl_width))),
      transformer_(register_module(
          "transformer", TransformerXl(TransformerXlOptions{.layers = config.txl_layers,
                                                            .width = config.txl_width,
                                                            .heads = config.txl_heads,
                                                            .inner_width = config.txl_inner_width,
                                                            .segment = config.txl_segment,
                                                            .memory = config.txl_segment}))) {
  const ActionHeadOptions head{.group_width = config.txl_width,
                               .width = config.head_width,
                               .data_parallel_prior = config.data_parallel_prior};
  if (begins_as_formula(config)) {
    formula_head_ =
        register_module("head", FormulaHead(FormulaHeadOptions{.group_width = config.txl_width,
                                                               .width = config.head_width}));
  } else if (config.fixed_devices > 0) {
    fixed_devices_ = config.fixed_devices;
    fixed_head_ = register_module("head", FixedHead(head, fixed_devices_));
  } else {
    device_head_ = register_module("head", DeviceHead(head));
  }
}

Said PolicyNetworkImpl::forward(const learn::FeatureTensors& features) {
  VALIDATE(fixed_devices_ == 0 || fixed_devices_ == features.devices.size(0),
           "policy: its fixed head is for {} devices, the cluster has {}; use a policy whose "
           "fixed_devices is 0",
           fixed_devices_, features.devices.size(0));
  const auto ops = encoder_->encode_ops(features);
  const auto embedding = encoder_->encode_groups(ops, features);
  const auto sequence = group_(torch::cat({embedding, features.groups}, 1)) +
                        device_(features.devices).mean(0, /*keepdim=*/true);
  const auto groups = transformer_(sequence);
  if (!formula_head_.is_empty()) return {.formula = formula_head_(groups, features)};
  const auto logits = fixed_devices_ > 0 ? fixed_head_(groups) : device_head_(groups, features);
  return {.log_probabilities =
              torch::log_softmax(logits.masked_fill(features.allowed.logical_not(), kMasked), 1),
          .formula = std::nullopt};
}

SeededWeights::SeededWeights(std::uint64_t seed) : lock_(making_weights()), seeded_(seed) {}

PolicyNetwork make_network(const TrainConfig& config, std::uint64_t seed) {
  const SeededWeights weights(seed);
  return PolicyNetwork(config);
}

void use_one_network_thread() { at::set_num_threads(1); }

}  // namespace heterog::learn
