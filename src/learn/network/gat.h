// Multi-head graph attention over a sparse graph (HeteroG §4.1.1; Veličković et al. 2018).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace heterog::learn {

// Neighbours N_o of every node o, o itself included, as parallel arrays.
struct Neighbours {
  torch::Tensor source;  // [E] int64: j
  torch::Tensor target;  // [E] int64: o
};

struct GatLayerOptions {
  std::int64_t in_width = 0;
  std::int64_t heads = 1;
  std::int64_t head_width = 1;  // the output has heads · head_width columns
  double negative_slope = 0.2;  // of the leaky ReLU inside the attention
};

class GatLayerImpl : public torch::nn::Module {
 public:
  explicit GatLayerImpl(const GatLayerOptions& options);
  // e_o = ‖_k σ(Σ_{j ∈ N_o} α^k_oj W^k e'_j), σ = ELU.  [V, in] → [V, heads · head_width]
  torch::Tensor forward(const torch::Tensor& nodes, const Neighbours& neighbours);
  // α^k_oj = softmax over j ∈ N_o of leakyReLU(a_s^k · W^k e'_j + a_t^k · W^k e'_o).  [E, heads]
  torch::Tensor attention(const torch::Tensor& projected, const Neighbours& neighbours);

 private:
  GatLayerOptions options_;
  torch::Tensor weight_;        // [in, heads · head_width]: W^1 … W^K side by side
  torch::Tensor source_score_;  // [heads, head_width]: a_s
  torch::Tensor target_score_;  // [heads, head_width]: a_t
};
TORCH_MODULE(GatLayer);

}  // namespace heterog::learn
