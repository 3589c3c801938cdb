// FlexFlow's search: Metropolis at one temperature, begun anew where it stands still.
#pragma once

#include "search/registry.h"

namespace heterog::search {

struct FlexflowOptions {
  // A step that is longer by x of itself is taken with probability exp(−beta·x).
  double beta = 1000;
};

// Jia et al. 2019, §6: a chain begins with plain data parallelism, ends when half of the budget has
// brought it nothing better, and the next begins with a random strategy. Moves are those of
// annealing, one a time, where FlexFlow changes one operator: what it divides beside samples
// (attributes, parameters) is no strategy here. Without a budget as many plans as one shot of
// `plan`.
PlannerEntry flexflow_entry();

}  // namespace heterog::search
