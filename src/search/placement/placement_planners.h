// Planners that place every operator on one device: fastt-dpos, m-topo, m-etf, m-sct, metis,
// dfs-topo, order-place, celeritas; and fastt, which splits them.
#pragma once

#include <vector>

#include "search/placement/placement_graph.h"
#include "search/registry.h"

namespace heterog::search {

// In which order the tasks of a placement start.
enum class PlacementOrder : std::uint8_t {
  kBest,  // of all of these
  kOwn,   // that in which the algorithm has them start, where it says so; else by rank
  kRank,
  kRankQueued,
  kFifo,
};

struct PlacementOptions {
  PlacementOrder order = PlacementOrder::kBest;
  Backward backward = Backward::kWithForward;
  // Times that a placement which does not fit is made anew, with as much less memory on each device
  // as its step was short of there.
  std::int64_t corrections = 0;
  // Whether operators' times are measured under a first placement where there are trials, as in
  // Celeritas §4.2.
  bool measures = false;
};

// Rows of the registry.
std::vector<PlannerEntry> placement_entries();

}  // namespace heterog::search
