// The line of devices along which stages are laid.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace heterog::search {

// Recursive minimum cuts (RDO, SPP algorithm 2): the devices fall into the two parts that the least
// bandwidth joins, and so on in each part, so that neighbours in the line are joined best. The part
// with the lowest device comes first.
std::vector<DeviceId> recursive_device_order(const cluster::Cluster& cluster);

}  // namespace heterog::search
