// Gradients summed by both methods: which groups by parameter servers, which by all-reduce.
#pragma once

#include "search/planner.h"
#include "search/starts/memory_fill.h"
#include "space/group_summary.h"

namespace heterog::search {

// The best of `start`, a plain strategy, and of what it becomes where some of the groups that have
// several replicas sum their gradients by parameter servers and the others by all-reduce: those
// with the most parameters by servers, or the last ones, in sixteenths of these groups. Ranks in
// which transfers do not wait for each other (kRank) give way to those in which they do
// (kRankQueued). Takes 11 evaluations at most. `coarse`, for many devices, halves and quarters
// alone, and tries those with the fewest parameters by servers, too, where the others share the
// largest buckets: 7 evaluations. No more than the evaluator has left.
Tried split_syncs(BatchEvaluator& evaluator, const space::GroupSummaries& groups,
                  const Tried& start, bool coarse = false);

}  // namespace heterog::search
