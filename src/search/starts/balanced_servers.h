// Data parallelism whose parameters go to servers by their bytes: baselines of AutoSync's paper.
#pragma once

#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "search/registry.h"

namespace heterog::search {

// Even shares. Parameter after parameter, the server is the one that has the fewest bytes by then
// (AutoDist's PSLoadBalancing; ties: lowest id). The compiler's own choice looks at links.
decide::Strategy balanced_ps(const cost::Problem& problem);

// Even shares. Tables whose gradients are rows that were looked up go to servers so, all others are
// all-reduced (Parallax, Kim et al. 2019).
decide::Strategy parallax(const cost::Problem& problem);

// Whether a parameter's gradient is that of look-ups alone, which travels as rows.
bool has_sparse_gradient(const graph::ModelGraph& graph, const graph::UpdateChain& chain);

// Planners "ps-lb" and "parallax".
std::vector<PlannerEntry> balanced_server_entries();

}  // namespace heterog::search
