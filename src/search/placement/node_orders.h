// Orders in which placement algorithms take nodes, and the lengths of paths behind them.
#pragma once

#include <vector>

#include "search/placement/placement_graph.h"

namespace heterog::search {

// One figure for what differs from device to device.
enum class Of : std::uint8_t { kMean, kMost };

// Time of nodes and of edges, over all devices and over all pairs of them.
struct Weights {
  IdVector<NodeId, Nanoseconds> node;
  Csr<NodeId, Nanoseconds> output;  // parallel to graph.outputs
};
Weights weights(const PlacementGraph& graph, Of of);

// Of each node: w + the longest, over what reads it, of c + its own (FastT §5.1: rank_u; Celeritas
// eq. 3: blevel).
IdVector<NodeId, Nanoseconds> bottom_levels(const PlacementGraph& graph, const Weights& weights);
// The longest path before each node, without itself (Celeritas eq. 2: tlevel).
IdVector<NodeId, Nanoseconds> top_levels(const PlacementGraph& graph, const Weights& weights);

// Less than this no placement takes, whatever its transfers: the longest path and the equal part of
// all work, each node at its fastest device. Updates may be done together, so they count nothing.
Nanoseconds least_step(const PlacementGraph& graph);

// Topological orders, each of all nodes.
//
// As a queue: what has become ready goes to its end (Baechi's m-TOPO).
std::vector<NodeId> breadth_first(const PlacementGraph& graph);
// As a stack, so that neighbours stay together: what has become ready goes to the head. Sources
// and children in the order of their numbers (Celeritas §4.2.2: DFS-TOPO), or by the length of the
// longest path through them, longest first (§5.1.3: CPD-TOPO).
std::vector<NodeId> depth_first(const PlacementGraph& graph);
std::vector<NodeId> critical_first(const PlacementGraph& graph, const Weights& weights);

}  // namespace heterog::search
