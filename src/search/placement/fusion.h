// Optimal operation fusion (Celeritas §5.1.3): where to cut an order of nodes into clusters.
#pragma once

#include <cstdint>
#include <vector>

#include "search/placement/node_orders.h"

namespace heterog::search {

struct FusionLimits {
  std::int64_t range = 200;  // of nodes in a cluster, at the most (R)
  Bytes bytes = 0;           // that a cluster keeps, at the most (M); a single node may keep more
};

// For each position of `order`, which is topological, its cluster: neighbours, numbered from 0, so
// that the edges between clusters take the least time in all (Kernighan 1971: S(j) = min over i of
// S(i) + what leaves [i, j) forwards). Of equal ones the one with the longest last cluster. Time:
// nodes · range + edges.
std::vector<std::uint32_t> fuse(const PlacementGraph& graph, const std::vector<NodeId>& order,
                                const Weights& weights, const FusionLimits& limits);

}  // namespace heterog::search
