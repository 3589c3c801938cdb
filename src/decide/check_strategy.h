// The check of a strategy, read or made, against its problem.
#pragma once

#include <string_view>

#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Throws an input error (prefixed by `source`) if the strategy does not fit the problem: wrong
// counts, unknown devices, weights that are not positive and finite, no replica or too many
// instances, two entries of sync for one parameter, a server that has no replica of it or of an
// all-reduce, priorities of what does not run or without the order that follows them.
void check_strategy(const cost::Problem& problem, const Strategy& strategy,
                    std::string_view source);

// Whether a device or host may be the server of a parameter: it holds a replica, which does not
// depend on how gradients travel, or it is a host that serves and several devices hold one
// (decision 5). `layout`: of the strategy without entries of sync.
bool may_serve(const cost::Problem& problem, const Layout& layout, TensorId parameter,
               DeviceId server);

}  // namespace heterog::decide
