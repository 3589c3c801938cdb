// Forward passes that run again for the backward pass, so that less is kept.
#pragma once

#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::search {

// A strategy of one unit in blocks of consecutive groups, of which what a block reads is kept and
// all else made again. Of n groups, about √n blocks keep the least (Chen et al. 2016); where blocks
// are of very unequal size, more: both.
std::vector<decide::Strategy> recomputed(const cost::Problem& problem,
                                         const decide::Strategy& strategy);

}  // namespace heterog::search
