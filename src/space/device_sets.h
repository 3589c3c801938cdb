// Sets of devices that are worth sharing work out to, on any cluster.
#pragma once

#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "space/cluster_summary.h"

namespace heterog::space {

// Devices of one set in the order of their ids. A set may have one device, and two lists the same
// set.
struct DeviceSets {
  std::vector<std::vector<DeviceId>> machines;  // the devices of each
  std::vector<std::vector<DeviceId>> types;     // of each type, the fastest type first
  std::vector<std::vector<DeviceId>> fastest;   // of the fastest type, of the two fastest, …, all
};
DeviceSets device_sets(const cost::Problem& problem);

// The whole batch over the devices so that all would compute for equally long, whatever their
// memory; a device that is too slow for one sample has none.
std::vector<decide::Replica> balanced_replicas(const cost::Problem& problem,
                                               const ModelSeconds& seconds,
                                               const std::vector<DeviceId>& devices);

}  // namespace heterog::space
