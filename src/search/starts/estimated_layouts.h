// Where groups would stand if estimates were all there is: starts that no change of a few groups
// leads to.
#pragma once

#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::search {

// Strategies that minimise, over the groups in topological order,
//   Σ compute + λ Σ sync + Σ moving what crosses between neighbours whose devices differ
// over the actions of space::ActionTable::kSets, for several λ: the part of the aggregation that is
// not hidden behind computation, which nobody knows beforehand. Estimates say little of whether
// parameter servers or all-reduce are faster beside everything else, so each layout is found for
// either and given with either. Distinct ones. Of alike devices of one machine only the first is
// tried alone. Memory is left to whoever simulates them.
std::vector<decide::Strategy> estimated_layouts(const cost::Problem& problem);

}  // namespace heterog::search
