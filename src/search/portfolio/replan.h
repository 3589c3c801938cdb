// From a plan that was made for another cluster or batch to a good one for this, in a moment.
#pragma once

#include <cstdint>
#include <vector>

#include "search/planner.h"

namespace heterog::search {

// As many as take about a tenth of a second on up to 16 devices, half a second on 64, and longer in
// proportion to the devices beyond; ten at least.
std::int64_t replan_evaluations(const cost::Problem& problem);

struct Replanned {
  PlannerResult result;
  Evaluation carried;  // the best of `carried` as they are
};

// `carried`: what the plan comes to here (decide/carry_over.h), one or more. Goes on from the best
// of them: devices that it leaves idle join; where it does not fit in memory it runs in
// micro-batches; a pipeline is cut anew beside it; plain data parallelism by speed is tried beside
// it; shares are settled, devices varied where plans are cheap, and the rest of the budget is local
// search: the context's, of replan_evaluations() where that has no number of plans. Then the order
// is improved, which no budget counts. Never worse than the best of `carried`. `found_by` begins
// with "carried", "cp-ar", "pipeline", "accumulate" or "memory-fill".
Replanned replan(PlannerContext& context, const std::vector<decide::Strategy>& carried);

}  // namespace heterog::search
