// The last step of planning: the same decisions in the best order that can be found for them.
#pragma once

#include <optional>

#include "compiler/compile_options.h"
#include "compiler/strategy.h"
#include "cost/problem.h"
#include "oracle/oracle.h"

namespace heterog::oracle {

// Tries the strategy in every order of compiler::kSearchedOrders, and makes priorities of the
// schedule of each, and of that of the strategy's own priorities, in up to `rounds` rounds of
// ForwardBackward. Nothing where none is better than the strategy's own order. Priorities are those
// of ops: what stands between ops follows from them (compiler/order.h).
std::optional<BetterOrder> improve_order(const cost::Problem& problem,
                                         const compiler::Strategy& strategy,
                                         const compiler::CompileOptions& options, int rounds);

}  // namespace heterog::oracle
