// The best of a few strategies.
#pragma once

#include <cstddef>
#include <functional>

#include "search/planner.h"

namespace heterog::search {

// Asks about strategies 0 … count − 1 (at least one), which `make` makes a few at a time: those of
// large plans are large too. At least one is asked about, whatever the budget. Of equals the first.
PlannerResult best_of(std::size_t count, const std::function<decide::Strategy(std::size_t)>& make,
                      oracle::Oracle& oracle, const Budget& budget);

}  // namespace heterog::search
