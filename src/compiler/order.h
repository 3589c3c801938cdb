// Priorities: the rank of every task and the total order that it gives (decision 8).
#pragma once

#include "compiler/plan.h"

namespace heterog::compiler {

// rank(o) = p(o) + max over successors of rank (HeteroG §4.2), and `order`: the position in
// (rank descending, op, kind, device, peer, begin, tensor). An overhead has the rank of the most
// urgent task that waits with it: by its own it would wait until nothing else is left to do.
void set_ranks(Plan& plan);

}  // namespace heterog::compiler
