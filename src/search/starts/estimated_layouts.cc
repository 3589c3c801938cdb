// Layouts are sets of unequal devices; what is hidden of aggregation is a parameter.
#include "search/starts/estimated_layouts.h"

#include <algorithm>
#include <utility>

#include "space/layout_costs.h"
#include "space/summary.h"

namespace heterog::search {

namespace {

using space::ActionId;

using decide::SyncMethod;

constexpr double kUnhidden[] = {0.05, 0.2, 0.5, 1.0};
constexpr SyncMethod kSyncs[] = {SyncMethod::kAllReduce, SyncMethod::kParameterServer};

std::vector<ActionId> worth_trying(const space::ActionSpace& actions,
                                   const cluster::Cluster& cluster, SyncMethod sync) {
  std::vector<ActionId> chosen = space::unlike_rows(actions, cluster);
  std::erase_if(chosen, [&](ActionId action) {
    return actions[action].placement != space::Placement::kSingle && actions[action].sync != sync;
  });
  return chosen;
}

// A single device aggregates nothing: all-reduce there, as in the table.
decide::Strategy with_sync(decide::Strategy strategy, SyncMethod sync) {
  for (decide::UnitDecision& unit : strategy.units) {
    unit.sync = unit.replicas.size() > 1 ? sync : SyncMethod::kAllReduce;
  }
  return strategy;
}

void add_distinct(decide::Strategy strategy, std::vector<decide::Strategy>& found) {
  if (std::ranges::find(found, strategy) == found.end()) found.push_back(std::move(strategy));
}

}  // namespace

std::vector<decide::Strategy> estimated_layouts(const cost::Problem& problem) {
  const space::Summary summary(problem, space::ActionTable::kSets);
  std::vector<decide::Strategy> found;
  for (const SyncMethod sync : kSyncs) {
    const std::vector<ActionId> actions = worth_trying(summary.actions, *problem.cluster, sync);
    const space::LayoutCosts costs = space::layout_costs(summary, actions);
    for (const double unhidden : kUnhidden) {
      std::vector<ActionId> chosen;
      for (const std::uint32_t layout : space::best_path(space::cost_chain(costs, unhidden))) {
        chosen.push_back(actions[layout]);
      }
      decide::Strategy strategy = summary.actions.strategy(chosen);
      strategy.order = decide::OrderPolicy::kRankQueued;
      for (const auto either : kSyncs) add_distinct(with_sync(strategy, either), found);
    }
  }
  return found;
}

}  // namespace heterog::search
