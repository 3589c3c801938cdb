// Transformer-XL: segments with memory against one long segment, and the attention by hand.
#include "learn/network/transformer_xl.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "learn/network/finite_difference.h"

namespace heterog::learn {
namespace {

TransformerXl transformer(std::int64_t segment, std::int64_t memory, std::uint64_t seed = 7) {
  torch::manual_seed(seed);
  TransformerXl t(TransformerXlOptions{.layers = 3,
                                       .width = 8,
                                       .heads = 2,
                                       .inner_width = 12,
                                       .segment = segment,
                                       .memory = memory});
  torch::NoGradGuard no_grad;
  for (auto& p : t->named_parameters()) {
    if (p.key().ends_with("_bias")) torch::nn::init::normal_(p.value(), 0, 0.5);
  }
  return t;
}

TEST(TransformerXl, SegmentsWithMemoryEqualOneLongSegment) {
  const auto sequence = torch::randn({23, 8});
  const auto whole = transformer(/*segment=*/23, /*memory=*/0)->forward(sequence);
  for (std::int64_t segment : {1, 5, 8, 22}) {
    const auto parts = transformer(segment, /*memory=*/23)->forward(sequence);
    EXPECT_LT((whole - parts).abs().max().item<double>(), 1e-5) << segment;
  }
  // Without memory the later segments must differ: the memory is what makes them equal.
  const auto forgetful = transformer(/*segment=*/8, /*memory=*/0)->forward(sequence);
  EXPECT_GT((whole - forgetful).abs().max().item<double>(), 1e-2);
}

TEST(TransformerXl, DoesNotLookAhead) {
  auto sequence = torch::randn({10, 8});
  TransformerXl t = transformer(4, 8);
  const auto before = t->forward(sequence);
  sequence[7] += 1;
  const auto after = t->forward(sequence);
  EXPECT_EQ((before - after).slice(0, 0, 7).abs().max().item<double>(), 0);
  EXPECT_GT((before - after)[7].abs().max().item<double>(), 1e-3);
}

TEST(TransformerXl, NoGradientThroughMemory) {
  auto sequence = torch::randn({8, 8}).requires_grad_();
  TransformerXl t = transformer(4, 8);
  t->forward(sequence).slice(0, 4).square().sum().backward();
  EXPECT_EQ(sequence.grad().slice(0, 0, 4).abs().max().item<double>(), 0);
  EXPECT_GT(sequence.grad().slice(0, 4).abs().max().item<double>(), 0);
}

// A_ij term by term, with R_{i−j} looked up for each pair (Dai et al. §3.3).
TEST(RelativeAttention, AgreesWithTheFormulaPairByPair) {
  torch::manual_seed(2);
  const std::int64_t width = 6, heads = 2, head = 3, length = 4, total = 7;
  RelativeAttention attention(width, heads);
  torch::NoGradGuard no_grad;
  auto p = attention->named_parameters();
  torch::nn::init::normal_(p["content_bias"]);
  torch::nn::init::normal_(p["position_bias"]);
  const auto context = torch::randn({total, width});
  const auto segment = context.slice(0, total - length);
  const auto r = relative_positions(total, width, context.options());
  auto expected = torch::zeros({length, width});
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto rows = [&](const char* name) { return p[name].slice(0, h * head, (h + 1) * head); };
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t place = total - length + i;
      const auto q = rows("query.weight").matmul(segment[i]);
      std::vector<double> score;
      for (std::int64_t j = 0; j <= place; ++j) {
        const auto k = rows("key.weight").matmul(context[j]);
        const auto position = rows("position.weight").matmul(r[place - j]);
        score.push_back(
            ((q + p["content_bias"][h]).dot(k) + (q + p["position_bias"][h]).dot(position))
                .item<double>() /
            std::sqrt(double(head)));
      }
      const auto alpha = torch::softmax(torch::tensor(score), 0);
      for (std::int64_t j = 0; j <= place; ++j) {
        expected[i].slice(0, h * head, (h + 1) * head) +=
            alpha[j] * rows("value.weight").matmul(context[j]);
      }
    }
  }
  expected = expected.matmul(p["output.weight"].t());
  EXPECT_LT((attention->forward(segment, context) - expected).abs().max().item<double>(), 1e-5);
}

TEST(TransformerXl, GradientsAgreeWithFiniteDifferences) {
  TransformerXl t = transformer(/*segment=*/6, /*memory=*/0);
  t->to(torch::kFloat64);
  auto sequence = torch::randn({6, 8}, torch::kFloat64).requires_grad_();
  const auto weights = torch::randn({6, 8}, torch::kFloat64);
  auto leaves = t->parameters();
  leaves.push_back(sequence);
  expect_gradients_match([&] { return (t->forward(sequence) * weights).sum(); }, leaves,
                         /*stride=*/11);
}

}  // namespace
}  // namespace heterog::learn
