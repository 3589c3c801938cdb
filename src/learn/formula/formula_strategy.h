// A drawn plan as a strategy.
#pragma once

#include "learn/formula/distribution.h"
#include "space/action_space.h"

namespace heterog::learn {

// On the problem's groups, or, of a pipeline, with its units spelled out.
decide::Strategy formula_strategy(const cost::Problem& problem, const space::ActionSpace& space,
                                  const FormulaTerms& terms, const DrawnPlan& plan);

}  // namespace heterog::learn
