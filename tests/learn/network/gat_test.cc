// The sparse attention layer against a dense one written from the formula.
#include "learn/network/gat.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "learn/network/finite_difference.h"

namespace heterog::learn {
namespace {

// 5 nodes, a chain with a shortcut, both directions and self.
Neighbours small_graph() {
  std::vector<std::int64_t> target, source;
  const std::vector<std::vector<std::int64_t>> lists = {
      {0, 1, 3}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3}, {4}};
  for (std::size_t o = 0; o < lists.size(); ++o) {
    for (std::int64_t j : lists[o]) {
      target.push_back(static_cast<std::int64_t>(o));
      source.push_back(j);
    }
  }
  return {torch::tensor(source), torch::tensor(target)};
}

// HeteroG §4.1.1 with an adjacency matrix and loops over nodes and heads.
torch::Tensor dense_layer(GatLayer& layer, const GatLayerOptions& options,
                          const torch::Tensor& nodes, const Neighbours& neighbours) {
  const auto parameters = layer->named_parameters();
  const auto weight = parameters["weight"];
  const std::int64_t count = nodes.size(0);
  auto adjacent = torch::zeros({count, count}, torch::kBool);
  for (std::int64_t e = 0; e < neighbours.target.size(0); ++e) {
    adjacent[neighbours.target[e].item<std::int64_t>()][neighbours.source[e].item<std::int64_t>()] =
        true;
  }
  std::vector<torch::Tensor> heads;
  for (std::int64_t k = 0; k < options.heads; ++k) {
    const auto w = weight.slice(1, k * options.head_width, (k + 1) * options.head_width);
    const auto projected = nodes.matmul(w);
    const auto a_s = parameters["source_score"][k];
    const auto a_t = parameters["target_score"][k];
    std::vector<torch::Tensor> rows;
    for (std::int64_t o = 0; o < count; ++o) {
      auto score =
          torch::leaky_relu(projected.matmul(a_s) + projected[o].dot(a_t), options.negative_slope);
      score =
          score.masked_fill(adjacent[o].logical_not(), -std::numeric_limits<double>::infinity());
      rows.push_back(torch::elu(torch::softmax(score, 0).matmul(projected)));
    }
    heads.push_back(torch::stack(rows));
  }
  return torch::cat(heads, 1);
}

TEST(GatLayer, AgreesWithDenseReference) {
  torch::manual_seed(3);
  const GatLayerOptions options{.in_width = 6, .heads = 3, .head_width = 4};
  GatLayer layer(options);
  const auto nodes = 3 * torch::randn({5, 6});
  const auto neighbours = small_graph();
  const auto sparse = layer->forward(nodes, neighbours);
  const auto dense = dense_layer(layer, options, nodes, neighbours);
  EXPECT_EQ(sparse.sizes(), torch::IntArrayRef({5, 12}));
  EXPECT_LT((sparse - dense).abs().max().item<double>(), 1e-5);
}

TEST(GatLayer, AttentionOfEveryNodeSumsToOne) {
  torch::manual_seed(4);
  GatLayer layer(GatLayerOptions{.in_width = 2, .heads = 2, .head_width = 3});
  const auto neighbours = small_graph();
  // Scores far apart: the softmax must not overflow.
  const auto alpha = layer->attention(200 * torch::randn({5, 2, 3}), neighbours);
  const auto sums = torch::zeros({5, 2}).index_add(0, neighbours.target, alpha);
  EXPECT_LT((sums - 1).abs().max().item<double>(), 1e-5);
}

TEST(GatLayer, GradientsAgreeWithFiniteDifferences) {
  torch::manual_seed(5);
  GatLayer layer(GatLayerOptions{.in_width = 3, .heads = 2, .head_width = 2});
  layer->to(torch::kFloat64);
  auto nodes = torch::randn({5, 3}, torch::kFloat64).requires_grad_();
  const auto weights = torch::randn({5, 4}, torch::kFloat64);
  const auto neighbours = small_graph();
  auto leaves = layer->parameters();
  leaves.push_back(nodes);
  expect_gradients_match([&] { return (layer->forward(nodes, neighbours) * weights).sum(); },
                         leaves);
}

}  // namespace
}  // namespace heterog::learn
