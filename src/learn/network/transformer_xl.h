// Transformer-XL over the sequence of groups (HeteroG §4.1.2; Dai et al. 2019).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace heterog::learn {

struct TransformerXlOptions {
  std::int64_t layers = 1;  // 0: the positions as they are, normalised
  std::int64_t width = 1;
  std::int64_t heads = 1;        // divide the width
  std::int64_t inner_width = 1;  // of the feed-forward part
  std::int64_t segment = 1;      // positions that are processed at once
  std::int64_t memory = 0;       // earlier positions of each layer that a segment looks back on
};

// R of Dai et al.: sinusoids of the distances 0 … count−1.  [count, width]
torch::Tensor relative_positions(std::int64_t count, std::int64_t width,
                                 const torch::TensorOptions& options);

// Causal attention with relative positions (Dai et al. §3.3):
// A_ij = (q_i + u)·k_j + (q_i + v)·(W_R R_{i−j}), scaled, softmax over j ≤ i.
class RelativeAttentionImpl : public torch::nn::Module {
 public:
  RelativeAttentionImpl(std::int64_t width, std::int64_t heads);
  // segment [T, width], context [L, width] whose last T rows are the segment → [T, width]
  torch::Tensor forward(const torch::Tensor& segment, const torch::Tensor& context);

 private:
  std::int64_t heads_;
  std::int64_t head_width_;
  torch::nn::Linear query_;
  torch::nn::Linear key_;
  torch::nn::Linear value_;
  torch::nn::Linear position_;  // W_R
  torch::nn::Linear output_;
  torch::Tensor content_bias_;   // [heads, head width]: u
  torch::Tensor position_bias_;  // [heads, head width]: v
};
TORCH_MODULE(RelativeAttention);

class TransformerXlImpl : public torch::nn::Module {
 public:
  explicit TransformerXlImpl(const TransformerXlOptions& options);
  // Segment after segment; each layer sees the last `memory` inputs that it had before, through
  // which no gradient flows (Dai et al. §3.2).  [N, width] → [N, width]
  torch::Tensor forward(const torch::Tensor& sequence);

 private:
  torch::Tensor layer(std::size_t index, const torch::Tensor& segment, torch::Tensor& memory);
  TransformerXlOptions options_;
  torch::nn::ModuleList attention_, attention_norm_, inner_, outer_, outer_norm_;
};
TORCH_MODULE(TransformerXl);

}  // namespace heterog::learn
