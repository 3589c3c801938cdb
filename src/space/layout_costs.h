// What a layout of the whole model would cost by formula: terms of each group, and of neighbours
// whose devices differ. Searches minimise their sum; the policy begins as it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "space/action_space.h"
#include "space/chain.h"
#include "space/summary.h"

namespace heterog::space {

// Of N groups in topological order and L layouts, which are rows of a table of actions.
struct LayoutCosts {
  std::size_t groups = 0, layouts = 0;
  std::vector<double> compute;   // [N, L] seconds, of the slowest replica
  std::vector<double> sync;      // [N, L] seconds, of the gradients
  std::vector<double> crossing;  // [N] bytes between the groups before this one and the rest
  std::vector<double> moving;    // [L, L] seconds a byte where the layout before differs
};
LayoutCosts layout_costs(const Summary& summary, std::span<const ActionId> layouts);

// The chain whose best path costs least: minus the seconds of compute, of λ · sync, and of what
// moves. The costs have to outlive it.
Chain cost_chain(const LayoutCosts& costs, double unhidden);

// Rows without those that are like another but for the place: of alike devices of one machine the
// first alone.
std::vector<ActionId> unlike_rows(const ActionSpace& actions, const cluster::Cluster& cluster);

}  // namespace heterog::space
