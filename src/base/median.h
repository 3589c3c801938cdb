// Robust summaries of repeated measurements.
#pragma once

#include <cstddef>
#include <vector>

namespace heterog {

// The mean of the middle two where the number is even. At least one value.
double median(std::vector<double> values);

// Median and median distance from it: both ignore up to half of outliers.
struct Robust {
  double median = 0;
  double spread = 0;
};
Robust robust(std::vector<double> values);

// Which of the values are the middle half, a quarter left out at either end; ties by place. At
// least one. Of steps, by how long each took: their mean has parts that add up to it. The medians
// of the parts do not: what disturbs a step hits another part each time, so medians leave it out,
// and their sum falls short of the median step by a tenth on a busy machine.
std::vector<std::size_t> middle_half(const std::vector<double>& values);

}  // namespace heterog
