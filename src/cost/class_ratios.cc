// Sums by class, shrunk twice.
#include "cost/class_ratios.h"

namespace heterog::cost {
namespace {

// The variance of operators of a class over that of classes, and of those over that of types. 1 is
// between what public measurements give, 1.2 and 0.7 (scripts/calibrate/priors.py).
constexpr double kLambda = 1;

}  // namespace

std::array<double, cluster::kOpClassCount> class_log_ratios(
    std::span<const MeasuredRatio> measured) {
  std::array<double, cluster::kOpClassCount> sum{}, count{}, result{};
  for (const MeasuredRatio& one : measured) {
    const auto at = static_cast<std::size_t>(one.op_class);
    sum[at] += one.log_ratio;
    ++count[at];
  }
  double weighted = 0, weights = 0;
  for (std::size_t at = 0; at < sum.size(); ++at) {
    weighted += sum[at] / (count[at] + kLambda);
    weights += count[at] / (count[at] + kLambda);
  }
  const double of_type = weighted / (weights + kLambda);
  for (std::size_t at = 0; at < sum.size(); ++at) {
    result[at] = (sum[at] + kLambda * of_type) / (count[at] + kLambda);
  }
  return result;
}

}  // namespace heterog::cost
