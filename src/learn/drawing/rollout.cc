// Draws many strategies from one forward pass.
#include "learn/drawing/rollout.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace heterog::learn {
namespace {

// Cumulative probabilities, row after row, in double: sums are in one order.
std::vector<double> cumulative(const torch::Tensor& log_probabilities) {
  const auto probability = log_probabilities.detach().to(torch::kFloat64).exp().contiguous();
  const double* p = probability.data_ptr<double>();
  const std::int64_t rows = probability.size(0);
  const std::int64_t columns = probability.size(1);
  std::vector<double> sums(rows * columns);
  for (std::int64_t n = 0; n < rows; ++n) {
    double sum = 0;
    for (std::int64_t a = 0; a < columns; ++a) {
      sums[n * columns + a] = sum += p[n * columns + a];
    }
  }
  return sums;
}

}  // namespace

std::vector<Actions> sample_actions(const torch::Tensor& log_probabilities, std::int64_t samples,
                                    const Rng& rng) {
  const std::int64_t groups = log_probabilities.size(0);
  const std::int64_t columns = log_probabilities.size(1);
  const std::vector<double> sums = cumulative(log_probabilities);
  std::vector<Actions> result(samples, Actions(groups));
  for (std::int64_t s = 0; s < samples; ++s) {
    Rng draw = rng.split(s);
    for (std::int64_t n = 0; n < groups; ++n) {
      const auto row = sums.begin() + n * columns;
      // The sum may miss 1 by rounding; scaled by it, no action beyond the last can be drawn, and
      // one of probability 0 never is.
      const auto it = std::upper_bound(row, row + columns, draw.uniform() * row[columns - 1]);
      result[s][n] =
          space::ActionId(static_cast<std::size_t>(std::min<std::int64_t>(it - row, columns - 1)));
    }
  }
  return result;
}

Actions most_likely(const torch::Tensor& log_probabilities) {
  const auto best = log_probabilities.detach().argmax(1).contiguous();
  const std::int64_t* action = best.data_ptr<std::int64_t>();
  Actions actions;
  for (std::int64_t n = 0; n < best.size(0); ++n) {
    actions.emplace_back(static_cast<std::size_t>(action[n]));
  }
  return actions;
}

torch::Tensor to_tensor(const std::vector<Actions>& actions) {
  const std::int64_t groups = actions.empty() ? 0 : static_cast<std::int64_t>(actions[0].size());
  auto tensor = torch::empty({static_cast<std::int64_t>(actions.size()), groups}, torch::kInt64);
  std::int64_t* out = tensor.data_ptr<std::int64_t>();
  for (const Actions& row : actions) {
    ENSURE(static_cast<std::int64_t>(row.size()) == groups);
    for (const space::ActionId action : row) *out++ = action.value();
  }
  return tensor;
}

}  // namespace heterog::learn
