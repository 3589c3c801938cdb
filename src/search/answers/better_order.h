// The last step of planning: the same decisions in the best order that is found for them.
#pragma once

#include <optional>

#include "search/starts/starts.h"

namespace heterog::search {

// The best of the orders that need no priorities (decide::kSearchedOrders; not of pipelines,
// which none of them suits), and of up to so many rounds of forward-backward improvement
// (Strategy::order_rounds) of each of these and of the strategy's own. Nothing where the strategy's
// own order is as good. What it looks at is counted by no budget. By whichever thread the oracle's
// measure_rounds() may be called. `known`: what the strategy comes to, where that is known.
std::optional<Tried> better_order(oracle::Oracle& oracle, const decide::Strategy& strategy,
                                  int rounds, const std::optional<Evaluation>& known = {});

}  // namespace heterog::search
