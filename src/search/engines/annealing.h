// Simulated annealing: takes worse strategies too, ever more rarely, and so leaves the optima that
// local search ends in.
#pragma once

#include "base/rng.h"
#include "search/engines/local_search.h"

namespace heterog::search {

struct AnnealingOptions {
  std::int64_t evaluations = 0;  // at most this many more
  double until = 1;              // and up to this part of the evaluator's budget
  // A step that is longer by this part of itself is taken with probability 1/e; at the beginning,
  // and at the end. In between it falls geometrically.
  double hot = 1e-2;
  double cold = 3e-5;
  // Neighbours that are evaluated at a time; the first acceptable one is taken. Another number is
  // another search.
  std::int64_t round = 4;
  // Ends when this part of the budget has brought nothing better; above 1: never.
  double patience = 2;
};

// `start` must have no priorities of its own. Gives the best that was seen, never worse than the
// start. The result depends on the number of threads only if the budget has seconds.
SearchResult anneal(BatchEvaluator& evaluator, const decide::Strategy& start, Rng& rng,
                    const AnnealingOptions& options);

// From the best baseline or, where none fits, from the best filling of memory.
PlannerEntry annealing_entry();

}  // namespace heterog::search
