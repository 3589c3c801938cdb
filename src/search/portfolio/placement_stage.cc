// Single operators on one device each, by list scheduling: for steps whose operators can run side
// by side, as those of recurrent models and of branching ones, with batches too small to be shared.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "search/placement/list_placement.h"
#include "search/placement/node_orders.h"
#include "search/portfolio/stages.h"
#include "search/starts/starts.h"

namespace heterog::search::portfolio {
namespace {

// A placement is simulated if its believed step is less than so many times the best one. On queued
// links, steps were simulated as short as 0.95 of what was believed; on free links none was
// shorter.
constexpr double kBelievedFree = 1, kBelievedQueued = 1.06;
// What takes so many times as long as the best, or less, may be the best in a better order.
constexpr double kNearEnough = 1.02;
// Two orders of three placements are a twentieth of a budget that has so many plans, of which a
// later phase has as many less. A smaller one tries none: the best of a few may be one that no
// order makes as good as the best of all, and more budget is never a longer step.
constexpr std::int64_t kPlansForPlacements = 120;

// Whether there are any to try: on hundreds of devices they take long, and have not won.
bool has_placements(const cost::Problem& problem) {
  return problem.cluster->device_count() > 1 && !evaluations_are_costly(problem);
}

// In the order in which the algorithm starts operators, and by rank.
void add_in_orders(const PlacementGraph& graph, const Estimate& estimate, const char* name,
                   std::vector<Start>& starts) {
  for (const std::vector<NodeId>& started : {estimate.started(), std::vector<NodeId>()}) {
    starts.push_back({{placed(graph, estimate.placement(), started), {}}, name});
  }
}

// Those that are believed to come near the best step.
std::vector<Start> placements(const cost::Problem& problem, double best) {
  std::vector<Start> starts;
  const PlacementGraph graph = make_placement_graph(problem, Backward::kAnywhere);
  if (to_seconds(least_step(graph)) >= best) return starts;
  const std::vector<Bytes> capacity = capacities(graph);
  for (const LinkUse links : {LinkUse::kFree, LinkUse::kQueued}) {
    const double longest = best * (links == LinkUse::kFree ? kBelievedFree : kBelievedQueued);
    const Estimate estimate = dpos(graph, capacity, {.links = links, .critical_device = false});
    if (to_seconds(estimate.finish()) < longest) {
      add_in_orders(graph, estimate, "fastt-dpos", starts);
    }
  }
  const Estimate estimate = earliest_start_first(graph, capacity, LinkUse::kQueued);
  if (to_seconds(estimate.finish()) < kBelievedQueued * best) {
    add_in_orders(graph, estimate, "m-etf", starts);
  }
  return starts;
}

}  // namespace

void try_placements(Search& search) {
  const cost::Problem& problem = search.context.problem();
  const Budget& budget = search.context.budget;
  if (std::exchange(search.placed, true) || !with(search, Part::kPlacements) ||
      !has_placements(problem) || !search.result.evaluation.feasible || budget.expired() ||
      budget.evaluations.value_or(kPlansForPlacements) < kPlansForPlacements) {
    return;
  }
  std::vector<Start> starts = placements(problem, to_seconds(search.result.evaluation.step));
  std::vector<decide::Strategy> strategies;
  for (const Start& start : starts) strategies.push_back(start.tried.strategy);
  const std::vector<Measured> measured = search.evaluator.evaluate(strategies);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    starts[i].tried.evaluation = measured[i].evaluation;
  }
  if (starts.empty()) return;
  best_first(starts);
  const Evaluation& best = starts.front().tried.evaluation;
  const double longest = kNearEnough * to_seconds(search.result.evaluation.step);
  if (best.feasible && to_seconds(best.step) <= longest) search.placement = starts.front();
}

}  // namespace heterog::search::portfolio
