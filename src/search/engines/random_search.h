// The best of many random strategies: what any learning planner must beat.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "search/registry.h"
#include "space/action_space.h"

namespace heterog::search {

// A random assignment of HeteroG's M+4 actions: the groups, in topological order, are cut into a
// random number of runs, each run with one action.
std::vector<space::ActionId> random_actions(const space::ActionSpace& actions, std::size_t groups,
                                            Rng& rng);

struct RandomSearchOptions {
  std::int64_t evaluations = 200;  // strategies that it tries without a budget
};
PlannerEntry random_search_entry();

}  // namespace heterog::search
