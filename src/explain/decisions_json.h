// Decisions of a plan as JSON: each with the part of the model that it is for.
#pragma once

#include "cost/problem.h"
#include "decide/strategy.h"
#include "explain/json.h"

namespace heterog::explain {

// Distinct decisions, those of the most operators first: devices with their samples, aggregation,
// and the operators (aliases are none), time and parameters that they hold for.
OrderedJson decisions_json(const cost::Problem& problem, const decide::Strategy& strategy);

}  // namespace heterog::explain
