// Multi-head graph attention over a sparse graph (HeteroG §4.1.1; Veličković et al. 2018).
#include "learn/network/gat.h"

#include <torch/torch.h>

namespace heterog::learn {

GatLayerImpl::GatLayerImpl(const GatLayerOptions& options) : options_(options) {
  const std::int64_t width = options.heads * options.head_width;
  weight_ = register_parameter("weight", torch::empty({options.in_width, width}));
  source_score_ =
      register_parameter("source_score", torch::empty({options.heads, options.head_width}));
  target_score_ =
      register_parameter("target_score", torch::empty({options.heads, options.head_width}));
  torch::nn::init::xavier_uniform_(weight_);
  torch::nn::init::xavier_uniform_(source_score_);
  torch::nn::init::xavier_uniform_(target_score_);
}

torch::Tensor GatLayerImpl::attention(const torch::Tensor& projected,
                                      const Neighbours& neighbours) {
  const std::int64_t nodes = projected.size(0);
  const auto from = (projected * source_score_).sum(-1);  // [V, K]
  const auto to = (projected * target_score_).sum(-1);    // [V, K]
  const auto score = torch::leaky_relu(
      from.index_select(0, neighbours.source) + to.index_select(0, neighbours.target),
      options_.negative_slope);  // [E, K]
  // Softmax over the edges of each target; the maximum is only there to keep exp in range.
  const auto index = neighbours.target.unsqueeze(1).expand_as(score);
  const auto highest = torch::full({nodes, options_.heads}, -1e30, score.options())
                           .scatter_reduce(0, index, score.detach(), "amax");
  const auto power = (score - highest.index_select(0, neighbours.target)).exp();
  const auto sum =
      torch::zeros({nodes, options_.heads}, score.options()).index_add(0, neighbours.target, power);
  return power / sum.index_select(0, neighbours.target);
}

torch::Tensor GatLayerImpl::forward(const torch::Tensor& nodes, const Neighbours& neighbours) {
  const auto projected =
      nodes.matmul(weight_).view({nodes.size(0), options_.heads, options_.head_width});
  const auto alpha = attention(projected, neighbours);  // [E, K]
  const auto messages =
      projected.index_select(0, neighbours.source) * alpha.unsqueeze(-1);  // [E, K, F]
  const auto summed =
      torch::zeros_like(projected).index_add(0, neighbours.target, messages);  // [V, K, F]
  return torch::elu(summed).flatten(1);
}

}  // namespace heterog::learn
