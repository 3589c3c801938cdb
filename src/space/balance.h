// Samples for each device so that all compute for about as long, without simulating anything.
#pragma once

#include <cstdint>
#include <optional>

#include "cost/problem.h"
#include "space/cluster_summary.h"

namespace heterog::space {

using Samples = IdVector<DeviceId, std::int64_t>;

// The batch over the devices so that the longest of them computes for the least time, with at most
// `most[d]` samples on device d. Empty if they hold less than the batch. Ties: the earlier device.
// O(devices · log² batch).
std::optional<Samples> balance(const ModelSeconds& seconds, std::int64_t batch,
                               const Samples& most);

}  // namespace heterog::space
