// Groups of ops that share one decision (HeteroG §4.1.1, docs/design.md §4.8).
#pragma once

#include <span>
#include <vector>

#include "base/csr.h"
#include "graph/model_graph.h"

namespace heterog::graph {

struct Grouping {
  IdVector<OpId, GroupId> group_of;  // every op, aliases too
  Csr<GroupId, OpId> members;        // ascending
  std::size_t count() const { return members.rows(); }
};

// Sets that must share a placement: a forward op, its backward ops, the parameters it reads and
// their update ops; an alias goes with the op that makes its base. Ids are dense, in order of the
// first member.
IdVector<OpId, GroupId> colocation_sets(const ModelGraph& graph);

// Colocation sets first; if there are more than `max_groups`, the sets with the largest weight are
// seeds and every other set joins the seed fewest hops away (ties: the larger seed, then the lower
// id). Groups are numbered in topological order of their first forward op. `weights`: mean
// execution time of each op, any unit, one an op.
Grouping group_ops(const ModelGraph& graph, std::span<const double> weights, int max_groups);

}  // namespace heterog::graph
