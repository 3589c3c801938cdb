// Sets of ranks that communicate in a step.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cluster/cluster.h"

namespace heterog::comm {

// The device sets of a job's collectives, each ascending and of two devices or more. All
// communicators are made up front, in this order, by every rank.
using DeviceSets = std::vector<std::vector<DeviceId>>;

// Bounds of parts of a value along its first axis: one more than there are parts, the first 0.
using Cuts = std::vector<std::int64_t>;

// All that the ranks of a job move in a step goes over these.
struct Traffic {
  DeviceSets sets;
  // Pairs of ranks of which the first sends to the second, in the order of ranks.
  std::vector<std::pair<DeviceId, DeviceId>> pairs;
  // Connections side by side between ranks of different machines, for what is larger than
  // cluster::kFlowBytes. `machine_of` a rank; empty: each is on a machine of its own.
  std::int64_t flows = 1;
  IdVector<DeviceId, MachineId> machine_of = {};
};

}  // namespace heterog::comm
