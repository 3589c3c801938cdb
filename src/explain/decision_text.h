// Decisions of a strategy in words.
#pragma once

#include <string>
#include <vector>

#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/strategy.h"

namespace heterog::explain {

// Each op's decision: of its unit, whether units are the problem's groups or the strategy's own.
const decide::UnitDecision& decision_of(const cost::Problem& problem,
                                        const decide::Strategy& strategy, OpId op);

// "v100/gpu0", "all devices equally, ps", "all devices 13:13:8:8:…, all-reduce",
// "v100/gpu0 + v100/gpu1 16:16, ps": by the samples that each device gets; behind that, where a
// device has several instances, ", in 8 instances".
std::string decision_text(const cost::Problem& problem, const decide::Strategy& strategy,
                          const decide::UnitDecision& decision);

// "on v100/gpu0", "ps at v100/gpu0 for 8 devices", "all-reduce over 8 devices".
std::string home_text(const cost::Problem& problem, const decide::ParameterHome& home);

}  // namespace heterog::explain
