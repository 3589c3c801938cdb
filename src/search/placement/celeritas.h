// Celeritas: clusters of neighbours in an order along critical paths, placed one after the other.
#pragma once

#include <cstdint>

#include "search/placement/estimate.h"

namespace heterog::search {

struct CeleritasOptions {
  std::int64_t range = 200;       // R of the fusion
  double memory_fraction = 0.25;  // M: of the memory of a device (the least), for a cluster
  bool adjust = true;             // Adjusting Placement; false: Order-Place
};

// Nodes in the order CPD-TOPO, fused into clusters, clusters in the order CPD-TOPO of the coarse
// graph (§5). Order-Place fills device after device with them. Adjusting Placement (algorithm 2)
// leaves a cluster where the one before it is, unless another device can start it so much earlier
// that this is more than the longest transfer of what it makes; where that device's memory is full,
// it takes the earliest start; where all are full, the device with most memory left. Nodes whose
// set was placed with an earlier cluster go there.
Placement celeritas(const PlacementGraph& graph, const std::vector<Bytes>& capacity,
                    const CeleritasOptions& options);

// Where the step of a first placement fits, which fills device after device depth first, nodes take
// what they take in it on the type of device that they ran on (Celeritas §4.2: the large batch is
// measured under a sequential placement). On other types they take what they were believed to.
void measure_times(PlacementGraph& graph, const std::vector<Bytes>& capacity,
                   oracle::Oracle& trials);

}  // namespace heterog::search
