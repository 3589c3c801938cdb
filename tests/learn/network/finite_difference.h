// Compares gradients with central differences, in double precision.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

namespace heterog {

// `loss` is a scalar function of the current values of `leaves` (float64, requires_grad). Every
// `stride`-th element of each leaf is moved by ±h.
inline void expect_gradients_match(const std::function<torch::Tensor()>& loss,
                                   std::vector<torch::Tensor> leaves, std::int64_t stride = 1) {
  const double h = 1e-6;
  for (auto& leaf : leaves) leaf.mutable_grad() = torch::Tensor();
  loss().backward();
  torch::NoGradGuard no_grad;
  for (auto& leaf : leaves) {
    ASSERT_EQ(leaf.scalar_type(), torch::kFloat64);
    ASSERT_TRUE(leaf.grad().defined());
    auto values = leaf.view(-1);
    const auto gradient = leaf.grad().reshape(-1);
    for (std::int64_t i = 0; i < values.numel(); i += stride) {
      const double before = values[i].item<double>();
      values[i] = before + h;
      const double up = loss().item<double>();
      values[i] = before - h;
      const double down = loss().item<double>();
      values[i] = before;
      const double expected = (up - down) / (2 * h);
      EXPECT_NEAR(gradient[i].item<double>(), expected, 1e-6 * (1 + std::abs(expected)));
    }
  }
}

}  // namespace heterog
