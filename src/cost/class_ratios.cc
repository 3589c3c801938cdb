// Sums by class, shrunk twice.
#include "cost/class_ratios.h"

namespace heterog::cost {
namespace {

constexpr double kLambda = 1;  // variance among operators of a class over that among classes

}  // namespace

std::array<double, cluster::kOpClassCount> class_log_ratios(
    std::span<const MeasuredRatio> measured) {
  std::array<double, cluster::kOpClassCount> sum{}, count{}, result{};
  for (const MeasuredRatio& one : measured) {
    const auto at = static_cast<std::size_t>(one.op_class);
    sum[at] += one.log_ratio;
    ++count[at];
  }
  double of_classes = 0, classes = 0;
  for (std::size_t at = 0; at < sum.size(); ++at) {
    if (count[at] == 0) continue;
    of_classes += sum[at] / count[at];
    ++classes;
  }
  const double of_type = of_classes / (classes + kLambda);
  for (std::size_t at = 0; at < sum.size(); ++at) {
    result[at] = (sum[at] + kLambda * of_type) / (count[at] + kLambda);
  }
  return result;
}

}  // namespace heterog::cost
