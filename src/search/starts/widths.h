// How many devices the first part of a model uses, and the last.
#pragma once

#include "search/planner.h"
#include "search/starts/memory_fill.h"
#include "space/group_summary.h"

namespace heterog::search {

// `start`, a plain strategy, with devices that it leaves idle beside the others for the first part
// of the computation, or with its fastest devices alone for the last part, as long as the step gets
// shorter; after each change shares are settled. A change takes up to 46 evaluations; there are
// four at most.
Tried vary_widths(BatchEvaluator& evaluator, const space::GroupSummaries& groups,
                  const Tried& start);

}  // namespace heterog::search
