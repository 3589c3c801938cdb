// Changes a few groups and keeps what helps, from a given start until the budget is spent.
#pragma once

#include <cstddef>
#include <span>

#include "base/rng.h"
#include "search/moves/move.h"
#include "search/registry.h"

namespace heterog::search {

struct LocalSearchOptions {
  std::int64_t evaluations = 0;  // at most this many more
  double until = 1;              // and up to this part of the evaluator's budget
  // Give up after this many proposals in a row that did not help; 0: never.
  std::int64_t patience = 0;
  // Moves that are evaluated at a time: few enough that little is wasted when the first one helps,
  // enough to keep several threads busy. Another number is another search.
  std::int64_t round = 8;
  bool together = false;  // kMovesTogether alone
};

struct SearchResult {
  decide::Strategy strategy;
  Evaluation evaluation;
};

// `start` must have no priorities of its own. The result does not depend on the number of threads.
SearchResult local_search(BatchEvaluator& evaluator, const decide::Strategy& start, Rng& rng,
                          const LocalSearchOptions& options);

// The search alone, from the best baseline or the best filling of memory.
PlannerEntry local_search_entry();

}  // namespace heterog::search
