// The table of planners that need no learning.
#include <algorithm>
#include <iterator>
#include <utility>

#include "search/autosync/autosync.h"
#include "search/engines/annealing.h"
#include "search/engines/exact.h"
#include "search/engines/flexflow.h"
#include "search/engines/local_search.h"
#include "search/engines/random_search.h"
#include "search/pipeline/pipelines.h"
#include "search/placement/placement_planners.h"
#include "search/portfolio/portfolio.h"
#include "search/registry.h"
#include "search/starts/balanced_servers.h"
#include "search/starts/baselines.h"
#include "search/starts/whole_model.h"

namespace heterog::search {

std::vector<PlannerEntry> builtin_planners() {
  std::vector<PlannerEntry> entries = baseline_entries();
  std::ranges::move(balanced_server_entries(), std::back_inserter(entries));
  std::ranges::move(whole_model_entries(), std::back_inserter(entries));
  entries.push_back(autosync_entry());
  std::ranges::move(pipeline_entries(), std::back_inserter(entries));
  std::ranges::move(placement_entries(), std::back_inserter(entries));
  entries.push_back(random_search_entry());
  entries.push_back(local_search_entry());
  entries.push_back(annealing_entry());
  entries.push_back(flexflow_entry());
  std::ranges::move(exact_entries(), std::back_inserter(entries));
  entries.push_back(portfolio_entry());
  return entries;
}

}  // namespace heterog::search
