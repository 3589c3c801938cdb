// Baechi's m-SCT: list scheduling in which nodes have favourites among those that read them.
#pragma once

#include "search/placement/clp.h"
#include "search/placement/estimate.h"

namespace heterog::search {

struct SctOptions {
  LinkUse links = LinkUse::kFree;
  // A child is a favourite where its x is less. Up to a half no node has two (Hanen & Munier).
  double threshold = 0.5;
  std::int64_t pivots = 200'000;  // of the simplex, at the most
};

// Of each node the child that is to run where it runs, at once; invalid: none.
using Favourites = IdVector<NodeId, NodeId>;

// The relaxed program of SCT (Hanen & Munier 1995; Baechi, Jeon et al. 2020, §3): least end w of
// starts s with s_i + k_i ≤ w and s_i + k_i + c_ij x_ij ≤ s_j for every edge, 0 ≤ x ≤ 1, where
// all children of a node but one, and all parents but one, have Σ x at least their count − 1. Times
// are means over devices and pairs of them, in milliseconds. Several values from one node to
// another are one edge, of all their bytes.
LinearProgram favourite_program(const PlacementGraph& graph);
// Edges with x below the threshold; each node is the favourite of one parent at the most.
Favourites favourites(const PlacementGraph& graph, const SctOptions& options);

// As m-ETF, but a device that has just run a node with a favourite waits for that one: others come
// only behind the time at which the node's outputs would be elsewhere, unless their inputs are
// there by the time that the device is free (they are urgent). Of equals the favourite is first.
Estimate favourites_first(const PlacementGraph& graph, std::vector<Bytes> capacity,
                          const Favourites& favourite, LinkUse links);

}  // namespace heterog::search
