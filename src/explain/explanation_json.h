// Why a plan's step takes as long as it does, as a program reads it.
#pragma once

#include "explain/explanation.h"
#include "explain/json.h"

namespace heterog::explain {

// The keys of `explain --json`, after those that name the problem.
OrderedJson explanation_json(const cost::Problem& problem, const sim::Simulated& simulated,
                             const Explanation& explanation);

}  // namespace heterog::explain
