// Medians.
#include "runtime/median.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace heterog::runtime {

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

}  // namespace heterog::runtime
