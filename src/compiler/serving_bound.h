// What parameter servers alone make a step take, known before any task is emitted.
#pragma once

#include "cost/problem.h"
#include "decide/layout.h"

namespace heterog::compiler {

// No order of the plan of this layout takes less: gradients are pushed to a server over one link
// after the other, and only then are new parameters pulled from it; and what all servers put on one
// link. 0 where no server stands in another machine than who talks to it. Pushes of rows of
// embeddings and compressed ones are not counted.
Nanoseconds serving_bound(const cost::Problem& problem, const decide::Layout& layout);

}  // namespace heterog::compiler
