// Where groups would stand if estimates were all there is: starts that no change of a few groups
// leads to.
#pragma once

#include <cstddef>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::search {

// What it costs to give each of N groups one of L layouts.
struct LayoutCosts {
  std::size_t layouts = 0;
  std::vector<double> own;       // [N, L] seconds
  std::vector<double> crossing;  // [N] bytes between the groups before this one and the rest
  std::vector<double> moving;    // [L, L] seconds a byte where the layout before differs
};
// The layout of each group that costs least in all; by dynamic programming, N · L² steps. Ties: the
// first.
std::vector<std::size_t> cheapest_layouts(const LayoutCosts& costs);

// Strategies that minimise, over the groups in topological order,
//   Σ compute + λ Σ sync + Σ moving what crosses between neighbours whose devices differ
// over the actions of space::ActionTable::kSets, for several λ: the part of the aggregation that is
// not hidden behind computation, which nobody knows beforehand. Estimates say little of whether
// parameter servers or all-reduce are faster beside everything else, so each layout is found for
// either and given with either. Distinct ones. Of alike devices of one machine only the first is
// tried alone. Memory is left to whoever simulates them.
std::vector<decide::Strategy> estimated_layouts(const cost::Problem& problem);

}  // namespace heterog::search
