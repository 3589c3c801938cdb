// Several starts, each climbed from a little; the better half goes on, twice as long, until one is
// left (successive halving, Jamieson and Talwalkar 2016).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/rng.h"
#include "search/starts/memory_fill.h"

namespace heterog::search {

struct Start {
  Tried tried;
  std::string name;  // who made it, and " + local-search" once climbing has helped
};

// Sorted by `better`; of equals, in the order in which they were.
void best_first(std::vector<Start>& starts);

// The first `most` (1 or more). If these are all of one name, the last of them gives way to the
// first of another name: starts of one origin end alike.
void keep_first(std::vector<Start>& starts, std::size_t most);

// What the starts have become, the best first. `starts` must be plain. Ends when `until` of the
// evaluator's budget is used. Never worse than the best start. `together`: as local_search() has
// it.
std::vector<Start> halve(BatchEvaluator& evaluator, std::vector<Start> starts, Rng& rng,
                         double until, bool together = false);

}  // namespace heterog::search
