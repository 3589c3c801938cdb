// The best of many random strategies: what any learning planner must beat.
#pragma once

#include <memory>
#include <vector>

#include "base/rng.h"
#include "planner/action_space.h"
#include "planner/planner.h"

namespace heterog::planner {

// A random assignment of HeteroG's M+4 actions: the groups, in topological order, are cut into a
// random number of runs, each run with one action.
std::vector<ActionId> random_actions(const ActionSpace& actions, std::size_t groups, Rng& rng);

// Strategies that random search tries without a budget.
inline constexpr std::int64_t kRandomEvaluations = 200;
std::unique_ptr<const Planner> make_random_search();

}  // namespace heterog::planner
