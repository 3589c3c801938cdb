// Placements by list scheduling: nodes in an order of their own, each where it can run earliest.
#pragma once

#include "search/placement/estimate.h"

namespace heterog::search {

struct DposOptions {
  LinkUse links = LinkUse::kFree;
  bool critical_device = true;  // nodes of the critical path on as few devices as their memory lets
};

// FastT's algorithm 1 (DPOS). Nodes by descending length of the longest path behind them, where a
// node and an edge count at their longest over all devices. Nodes of the critical path go to the
// critical-path device: the one on which as many of them as its memory takes are fastest in the
// mean; what it cannot take goes to the next one chosen so. All others go where they end first,
// in gaps too. A node whose set is placed goes there; one that fits nowhere, where most memory is
// left.
Estimate dpos(const PlacementGraph& graph, std::vector<Bytes> capacity, const DposOptions& options);

// Baechi's m-ETF: of all nodes whose inputs are made and all devices that have the memory, the pair
// that can start first (ties: the node with the longest path behind it, then the lowest numbers).
// Devices take nodes one behind the other.
Estimate earliest_start_first(const PlacementGraph& graph, std::vector<Bytes> capacity,
                              LinkUse links);

// Devices one after the other, each filled in this order until the next node does not fit; then the
// one with most memory left.
Estimate filled(const PlacementGraph& graph, std::vector<Bytes> capacity,
                const std::vector<NodeId>& order);

}  // namespace heterog::search
