// The table of planners that need no learning.
#include <algorithm>
#include <iterator>
#include <utility>

#include "planner/annealing.h"
#include "planner/baselines.h"
#include "planner/exact.h"
#include "planner/local_search.h"
#include "planner/pipeline/pipelines.h"
#include "planner/placement/placement_planners.h"
#include "planner/portfolio.h"
#include "planner/random_search.h"
#include "planner/registry.h"

namespace heterog::planner {

std::vector<PlannerEntry> builtin_planners() {
  std::vector<PlannerEntry> entries = baseline_entries();
  std::ranges::move(pipeline_entries(), std::back_inserter(entries));
  std::ranges::move(placement_entries(), std::back_inserter(entries));
  entries.push_back(random_search_entry());
  entries.push_back(local_search_entry());
  entries.push_back(annealing_entry());
  std::ranges::move(exact_entries(), std::back_inserter(entries));
  entries.push_back(portfolio_entry());
  return entries;
}

}  // namespace heterog::planner
