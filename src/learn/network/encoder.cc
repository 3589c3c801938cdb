// From the features of ops to one embedding a group (HeteroG §4.1.1).
#include "learn/network/encoder.h"

#include <torch/torch.h>

namespace heterog::learn {
namespace {

torch::Tensor to_tensor(const FeatureMatrix& matrix) {
  return torch::tensor(matrix.values, torch::kFloat32).view({matrix.rows, matrix.columns});
}

}  // namespace

FeatureTensors to_tensors(const Features& features) {
  FeatureTensors tensors;
  tensors.ops = to_tensor(features.ops);
  tensors.groups = to_tensor(features.groups);
  tensors.devices = to_tensor(features.devices);
  tensors.actions =
      to_tensor(features.actions)
          .view({features.groups.rows, features.action_count, features.actions.columns});
  tensors.allowed = torch::tensor(features.allowed, torch::kUInt8)
                        .view({features.groups.rows, features.action_count})
                        .to(torch::kBool);
  tensors.members = to_tensor(features.members);
  tensors.scheme = torch::tensor(features.scheme, torch::kInt64);
  tensors.group_of_op = torch::tensor(features.group_of_op, torch::kInt64);
  tensors.neighbours.source = torch::tensor(features.edge_source, torch::kInt64);
  tensors.neighbours.target = torch::tensor(features.edge_target, torch::kInt64);
  return tensors;
}

FeatureTensors on_device(const FeatureTensors& features, torch::Device device) {
  FeatureTensors moved = features;
  for (torch::Tensor* tensor :
       {&moved.ops, &moved.groups, &moved.devices, &moved.actions, &moved.allowed, &moved.members,
        &moved.scheme, &moved.group_of_op, &moved.layouts, &moved.neighbours.source,
        &moved.neighbours.target}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return moved;
}

GraphEncoderImpl::GraphEncoderImpl(const GraphEncoderOptions& options)
    : options_(options),
      input_(register_module("input", torch::nn::Linear(options.op_features, width()))),
      pool_(register_module(
          "pool", torch::nn::Linear(torch::nn::LinearOptions(width(), width()).bias(false)))) {
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    layers_->push_back(GatLayer(GatLayerOptions{
        .in_width = width(), .heads = options.heads, .head_width = options.head_width}));
    norms_->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width()})));
  }
  register_module("layers", layers_);
  register_module("norms", norms_);
}

torch::Tensor GraphEncoderImpl::encode_ops(const FeatureTensors& features) {
  torch::Tensor ops = torch::elu(input_(features.ops));
  for (std::size_t layer = 0; layer < layers_->size(); ++layer) {
    auto& attention = *layers_[layer]->as<GatLayer>();
    auto& norm = *norms_[layer]->as<torch::nn::LayerNorm>();
    ops = norm.forward(ops + attention.forward(ops, features.neighbours));
  }
  return ops;
}

torch::Tensor GraphEncoderImpl::encode_groups(const torch::Tensor& ops,
                                              const FeatureTensors& features) {
  const auto sum = torch::zeros({features.groups.size(0), width()}, ops.options())
                       .index_add(0, features.group_of_op, pool_(ops));
  return torch::elu(sum);
}

}  // namespace heterog::learn
