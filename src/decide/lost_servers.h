// Servers that a strategy names and that hold their parameters no longer.
#pragma once

#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::decide {

// The strategy's entries of sync, once its decisions have changed: without servers that may no
// longer serve (may_serve), so that the compiler chooses one where none is left. A parameter whose
// devices are no longer those of the first of its group (ParameterSync::group) leaves the group.
std::vector<ParameterSync> without_lost_servers(const cost::Problem& problem,
                                                const Strategy& strategy);

}  // namespace heterog::decide
