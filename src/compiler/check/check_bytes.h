// Proves that a plan moves over each link what its strategy says, and no more.
#pragma once

#include <string>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::compiler {

// Bytes over each link in a step of this strategy, worked out without compiling it: the samples
// that a device lacks of what it reads (decision 2), once a device (decision 3); the pushes, pulls
// and collectives of every gradient, by the formulas of ring, chain and all-gather; running
// statistics.
IdVector<LinkId, double> expected_link_bytes(const cost::Problem& problem,
                                             const decide::Strategy& strategy);

// Mistakes of the plan, one sentence a link and at most 20; empty: the plan's holds add up to the
// expected bytes, but for the rounding of collectives to whole nanoseconds.
std::vector<std::string> check_bytes(const cost::Problem& problem, const decide::Strategy& strategy,
                                     const Plan& plan);

}  // namespace heterog::compiler
