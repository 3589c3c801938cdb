// Samples for each device so that all compute for about as long, without simulating anything.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cost/problem.h"

namespace heterog::planner {

using Samples = IdVector<DeviceId, std::int64_t>;

// Seconds that a device computes when it runs the whole model on some of the samples.
class ModelSeconds {
 public:
  explicit ModelSeconds(const cost::Problem& problem);
  double operator()(DeviceId device, std::int64_t samples) const;

 private:
  IdVector<DeviceId, DeviceTypeId> type_;
  std::vector<std::int64_t> knots_;
  IdVector<DeviceTypeId, std::vector<double>> seconds_;  // at each knot, summed over the ops
};

// The batch over the devices so that the longest of them computes for the least time, with at most
// `most[d]` samples on device d. Empty if they hold less than the batch. Ties: the earlier device.
// O(devices · log² batch).
std::optional<Samples> balance(const ModelSeconds& seconds, std::int64_t batch,
                               const Samples& most);

}  // namespace heterog::planner
