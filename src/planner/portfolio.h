// What `heterog plan` does: the best of everything at hand, improved while the budget lasts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "planner/planner.h"

namespace heterog::planner {

// Gives up to `count` strategies that somebody else made (the policy's samples), each call others.
using Proposer = std::function<std::vector<compiler::Strategy>(int count)>;

struct PortfolioResult {
  PlannerResult best;
  std::string found_by;  // "ev-ar", "policy", "memory-fill"; "… + local-search" where that helped
  struct Baseline {
    std::string name;
    Evaluation evaluation;
  };
  std::vector<Baseline> baselines;  // one per name; "single" is its best device
};

// Baselines, `propose`'s strategies (may be empty), shares by speed and memory, blocks of layers
// where nothing else fits; the best of these through a short local search. With a budget it goes on
// until that is spent: local search from the best, kicks where it is stuck, more proposals. Never
// worse than the best baseline, whatever the budget: the baselines are always evaluated.
PortfolioResult best_plan(PlannerContext& context, const Proposer& propose);

// For the registry: the search alone, from the best baseline or the best filling of memory.
std::unique_ptr<const Planner> make_local_search();

}  // namespace heterog::planner
