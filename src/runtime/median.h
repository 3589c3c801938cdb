// Robust summaries of repeated measurements.
#pragma once

#include <vector>

namespace heterog::runtime {

// The mean of the middle two where the number is even. At least one value.
double median(std::vector<double> values);

// Median and median distance from it: both ignore up to half of outliers.
struct Robust {
  double median = 0;
  double spread = 0;
};
Robust robust(std::vector<double> values);

}  // namespace heterog::runtime
