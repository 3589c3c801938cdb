// What `heterog plan` does: the best of everything at hand, improved while the budget lasts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/registry.h"

namespace heterog::planner {

// Gives up to `count` strategies that somebody else made (the policy's samples), each call others.
// What it wants evaluated for that counts as the planner's evaluations.
using Proposer =
    std::function<std::vector<compiler::Strategy>(BatchEvaluator& evaluator, int count)>;

struct PortfolioOptions {
  std::int64_t proposals = 8;     // that are asked for
  std::int64_t patience = 160;    // local search is stuck after so many proposals in vain
  std::int64_t order_rounds = 6;  // in which the order of what was found is improved in the end
  std::int64_t pipelines = 24;    // that are tried
  MoveScorer* scorer = nullptr;   // of the searches; none: they simulate all moves that they draw
  std::int64_t drawn = kDrawnMoves;
};

// Baselines, `propose`'s strategies (may be empty), layouts by estimate, shares by speed and
// memory, blocks of layers where nothing else fits; the best of these climbed from and halved;
// pipelines whose estimate is not far above what was found; annealing and local search from the
// best but for pipelines until the budget is spent, that of one shot if none is given
// (docs/search.md). Then devices are left out without which the step is no longer, up to 16 tries
// that count as evaluations. Never worse than the best baseline, whatever the budget: the baselines
// are always evaluated. In the end the order of what was found is improved, which no budget of
// evaluations counts. `found_by` is "ev-ar", "large-buckets", "policy", "estimate", "memory-fill",
// "pipeline", …, with " + shares" (settled by busy time), " + local-search", " + annealing" and " +
// order" where these helped.
PlannerResult best_plan(PlannerContext& context, const Proposer& propose,
                        const PortfolioOptions& options = {});

}  // namespace heterog::planner
