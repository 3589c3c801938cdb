// FastT: operators placed and split by what a cost model knows, which learns from every plan that
// is tried.
#pragma once

#include <cstdint>
#include <vector>

#include "search/placement/parts.h"
#include "search/placement/transfer_lines.h"
#include "search/registry.h"

namespace heterog::search {

// A placement of parts, and when its last part is believed to end.
struct SplitPlacement {
  Parts parts;
  PartedGraph graph;
  Placement placement;
  std::vector<NodeId> started;  // parts in the order in which they start
  Nanoseconds finish = 0;
  std::int64_t splits = 0;  // sets that were split further than they had been
};

// Durations and transfers that have been observed; others are 0, so that they are tried
// (FastT §4: cost models).
class CostBook {
 public:
  explicit CostBook(const PlacementGraph& whole);

  // All that runs and is sent in this placement. Whether anything was new.
  bool observe(const PartedGraph& graph, const Placement& placement);
  // The graph with what is known in place of what is so.
  void apply(PartedGraph& graph) const;

 private:
  const PlacementGraph& whole_;
  std::vector<std::uint8_t> known_;  // [node of the whole graph][device type]
  TransferLines lines_;
  std::vector<std::uint8_t> pair_known_;  // [from][to]
};

struct SplitOptions {
  std::int64_t operators = 8;  // of the critical path that are tried, at the most
};

// FastT's algorithm 2 (OS-DPOS): algorithm 1 on the graph in these parts; then the sets of the
// critical path, that of the longest node first: each is split by 2, 4, 8, … up to the number of
// devices, and by that number, and the best of these is kept. Ends with the first that gains
// nothing. `may` says which sets may be split.
SplitPlacement split_placement(const PlacementGraph& whole, const Parts& parts,
                               const IdVector<SetId, std::uint8_t>& may,
                               const std::vector<Bytes>& capacity, const CostBook& costs,
                               const SplitOptions& options);

// Row of the registry: FastT's loop (§4) around it.
PlannerEntry fastt_entry();

}  // namespace heterog::search
