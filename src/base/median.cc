// Medians.
#include "base/median.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace heterog {

double median(std::vector<double> values) {
  ENSURE(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Robust robust(std::vector<double> values) {
  const double middle = median(values);
  for (double& value : values) value = std::abs(value - middle);
  return {middle, median(std::move(values))};
}

std::vector<std::size_t> middle_half(const std::vector<double>& values) {
  ENSURE(!values.empty());
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  const auto left_out = static_cast<std::ptrdiff_t>(values.size() / 4);
  return {order.begin() + left_out, order.end() - left_out};
}

}  // namespace heterog
