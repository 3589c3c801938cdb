// A drawn plan as a strategy.
#pragma once

#include "learn/formula/distribution.h"
#include "space/action_space.h"

namespace heterog::learn {

// On the problem's groups. Stages that cannot be cut into so many micro-batches take the next
// smaller number.
decide::Strategy formula_strategy(const cost::Problem& problem, const space::ActionSpace& space,
                                  const FormulaTerms& terms, const DrawnPlan& plan);

}  // namespace heterog::learn
