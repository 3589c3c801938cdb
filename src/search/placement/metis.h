// Sets of nodes in parts of equal work and few bytes between them, by METIS where it is installed.
#pragma once

#include <string>

#include "search/placement/placement_graph.h"

namespace heterog::search {

struct MetisOptions {
  std::int64_t imbalance = 30;  // METIS' ufactor: in thousandths of a part
  std::int64_t seed = 0;
};

// A k-way partition of least bytes between parts. A vertex is a set of nodes that stay together,
// weighed by its computation (the mean over devices), the part of a device by its speed: memory is
// not looked at. Throws an input error where METIS is not installed.
Placement partitioned(const PlacementGraph& graph, const MetisOptions& options,
                      const std::string& library = "libmetis.so.5");

}  // namespace heterog::search
