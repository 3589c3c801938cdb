// From a plan that was made for another cluster or batch to a good one for this, in a moment.
#pragma once

#include <cstdint>
#include <vector>

#include "decide/carry_over.h"
#include "search/planner.h"

namespace heterog::search {

// As many as take about a tenth of a second on up to 16 devices, half a second on 64, and longer in
// proportion to the devices beyond; ten at least.
std::int64_t replan_evaluations(const cost::Problem& problem);

// By the time that the whole model takes: how many times as fast each device is as one of the type
// of what it stands for; 1 where the cluster has none of that type. Empty if no device has changed.
IdVector<DeviceId, double> times_as_fast(const decide::OtherPlan& plan,
                                         const decide::DeviceMatch& match,
                                         const cost::Problem& problem);

struct Replanned {
  PlannerResult result;
  Evaluation carried;  // the best of `carried` as they are
};

// `carried`: what the plan comes to here (decide/carry_over.h), one or more; `changed`: the same
// with what the change calls for. Goes on from the best of all: devices that it leaves idle join;
// where it does not fit in memory it runs in micro-batches; a pipeline is cut anew beside it; what
// needs no search is tried beside it: data parallelism by speed, with servers of rows too, and
// estimated layouts; shares are settled, devices varied where plans are cheap, and the rest of the
// budget is local search: the context's, of replan_evaluations() where that has no number of plans.
// Then the order is improved, which no budget counts. Never worse than the best of `carried`.
// `found_by` begins with "carried", "cp-ar", "cp-ps + several servers", "estimate", "pipeline",
// "accumulate" or "memory-fill".
Replanned replan(PlannerContext& context, const std::vector<decide::Strategy>& carried,
                 const std::vector<decide::Strategy>& changed = {});

}  // namespace heterog::search
