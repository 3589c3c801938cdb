// Shares of the batch by what the simulated step says, before anything is searched.
#pragma once

#include "search/moves/move.h"
#include "search/planner.h"
#include "search/starts/memory_fill.h"
#include "space/group_summary.h"

namespace heterog::search {

// `start`, on the problem's groups, with samples moved within its sets of devices so that these
// would be busy for equally long, every set by as much as it has of the computation; again for up
// to `rounds`, as long as the step gets shorter. A round takes two evaluations.
Tried settle(BatchEvaluator& evaluator, const space::GroupSummaries& groups, const Tried& start,
             int rounds);

}  // namespace heterog::search
