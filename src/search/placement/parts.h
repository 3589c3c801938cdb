// Nodes that are run in parts of the batch, each part where it likes (FastT §5.2).
#pragma once

#include <vector>

#include "search/placement/placement_graph.h"

namespace heterog::search {

// In how many parts each set is run. All nodes of a set are: they have one decision in a strategy.
using Parts = IdVector<SetId, std::int64_t>;

// The graph of the parts. A set in n parts has n sets of 1/n of the batch, each with its
// parameters; their update is in the first. Each other gets the parameters from there as the step
// begins, and sends its gradients there.
struct PartedGraph {
  PlacementGraph graph;
  struct Part {
    NodeId whole;  // invalid: what the parameters of a set are sent from
    std::uint32_t number = 0;
  };
  IdVector<NodeId, Part> part_of;
  IdVector<NodeId, NodeId> first;  // of a node of the whole graph: its first part
};

// Whether all of its forward and backward ops can run on slices.
IdVector<SetId, std::uint8_t> sets_that_split(const PlacementGraph& whole);

PartedGraph in_parts(const PlacementGraph& whole, const Parts& parts);

// The strategy that says so. Parts on one device are one slice. Gradients are aggregated by
// parameter servers, where the update is, or all-reduced. With `started`, parts in the order in
// which they start, priorities that keep to it; else by rank.
decide::Strategy placed_parts(const PlacementGraph& whole, const PartedGraph& parts,
                              const Placement& placement, const std::vector<NodeId>& started,
                              decide::SyncMethod sync);

}  // namespace heterog::search
