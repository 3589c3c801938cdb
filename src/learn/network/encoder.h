// Encoder: features of ops to one embedding a group (HeteroG §4.1.1).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "learn/network/features.h"
#include "learn/network/gat.h"

namespace heterog::learn {

// gnn::Features as tensors: made once a problem, read by every forward pass.
struct FeatureTensors {
  torch::Tensor ops;          // [V, op features]
  torch::Tensor groups;       // [N, group features]
  torch::Tensor devices;      // [M, device features]
  torch::Tensor actions;      // [N, A, action features]
  torch::Tensor allowed;      // [N, A] bool
  torch::Tensor members;      // [A, M], rows add up to 1
  torch::Tensor scheme;       // [A] int64
  torch::Tensor group_of_op;  // [V] int64
  torch::Tensor layouts;      // [layouts, layout features], of the formula's policy; else undefined
  Neighbours neighbours;
};
FeatureTensors to_tensors(const Features& features);
FeatureTensors on_device(const FeatureTensors& features, torch::Device device);

struct GraphEncoderOptions {
  std::int64_t op_features = 0;
  std::int64_t layers = 1;
  std::int64_t heads = 1;
  std::int64_t head_width = 1;
};

class GraphEncoderImpl : public torch::nn::Module {
 public:
  explicit GraphEncoderImpl(const GraphEncoderOptions& options);
  // e_o of every op.  [V, op features] → [V, width()]
  // Between layers: a residual sum and layer normalisation, without which twelve layers of
  // attention average every node to the same vector.
  torch::Tensor encode_ops(const FeatureTensors& features);
  // g_n = σ(Σ_{o ∈ G_n} W e_o), σ = ELU.  [V, width()] → [N, width()]
  torch::Tensor encode_groups(const torch::Tensor& ops, const FeatureTensors& features);
  std::int64_t width() const { return options_.heads * options_.head_width; }

 private:
  GraphEncoderOptions options_;
  torch::nn::Linear input_;
  torch::nn::ModuleList layers_;
  torch::nn::ModuleList norms_;
  torch::nn::Linear pool_;  // W of g_n
};
TORCH_MODULE(GraphEncoder);

}  // namespace heterog::learn
