// What `heterog plan` does: the best of everything at hand, improved while the budget lasts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/registry.h"

namespace heterog::search {

// What a portfolio may do without, to measure what it is worth (scripts/reproduce/ablation.py).
enum class Part : std::uint8_t {
  kNothing,
  kEstimates,
  kMemoryFill,
  kOtherOrders,
  kSettling,
  kWidths,
  kHalving,
  kSyncSplit,
  kPipelines,
  kMovedPipelines,
  kLeaveOut,
  kOrder,
  kServers,
  kPlacements,
  kTogether
};

struct PortfolioOptions {
  std::int64_t patience = 160;    // local search is stuck after so many moves in vain
  std::int64_t order_rounds = 6;  // in which the order of what was found is improved in the end
  std::int64_t pipelines = 24;    // that are tried
  Part without = Part::kNothing;
  // What somebody else has found (a policy that was fine-tuned), to climb from too, and what it is
  // called in `found_by`.
  std::vector<decide::Strategy> given = {};
  std::string given_by = "given";
};

// Baselines, strategies that are given, layouts by estimate, shares by speed and
// memory, blocks of layers where nothing else fits; the best of these climbed from and halved;
// pipelines whose estimate is not far above what was found; annealing and local search from the
// best but for pipelines until the budget is spent, that of one shot if none is given
// (docs/search.md). Then devices are left out without which the step is no longer, up to 16 tries
// that count as evaluations, and placements of single operators are tried, up to 6. Never
// worse than the best baseline, whatever the budget: the baselines are always evaluated. In the end
// the order of what was found is improved, which no budget of evaluations counts. `found_by` is
// "ev-ar", "large-buckets", "estimate", "memory-fill", "pipeline", "m-etf", …, with " + shares"
// (settled by busy time), " + local-search", " + annealing" and " + order" where these helped.
PlannerResult best_plan(PlannerContext& context, const PortfolioOptions& options = {});

// Planner "portfolio".
PlannerEntry portfolio_entry();

}  // namespace heterog::search
