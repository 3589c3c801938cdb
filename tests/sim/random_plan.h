// Random plans: random dependencies, resources, ties, tasks of no time, buffers.
#pragma once

#include "base/rng.h"
#include "compiler/plan.h"
#include "decide/strategy.h"

namespace heterog::sim {

// That need no priorities.
inline constexpr decide::OrderPolicy kOrders[] = {decide::OrderPolicy::kRank,
                                                  decide::OrderPolicy::kFifo};

compiler::Plan random_plan(Rng& rng);
void shuffle_priorities(compiler::Plan& plan, Rng& rng);

}  // namespace heterog::sim
