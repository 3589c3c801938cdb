// The compiler: from a problem and a strategy to the plan of a distributed step.
#pragma once

#include "compiler/compile_options.h"
#include "compiler/plan.h"
#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::compiler {

// The strategy must fit the problem (check_strategy). Deterministic. O(tasks). A plan that is no
// longer needed may be given back: its memory is used again.
Plan compile(const cost::Problem& problem, const decide::Strategy& strategy,
             const CompileOptions& options = {}, Plan recycled = {});

}  // namespace heterog::compiler
