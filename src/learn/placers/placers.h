// Placements that are learned for one problem, from nothing: HRL, Post, GDP and Mirhoseini's. No
// LibTorch here.
#pragma once

#include <cstdint>
#include <vector>

#include "search/registry.h"

namespace heterog::learn {

enum class PlacerKind : std::uint8_t {
  kReinforce,  // sequence to sequence (Mirhoseini et al. 2017)
  kHrl,        // a grouper, and sequence to sequence (Mirhoseini et al. 2018)
  kPost,       // a distribution a group (Gao et al. 2018)
  kGdp,        // graph attention, Transformer-XL (Zhou et al. 2019)
};

struct PlacerOptions {
  std::int64_t evaluations = 200;  // placements that are drawn without a budget
  std::int64_t groups = 256;       // the most that are placed
  std::int64_t samples = 10;       // placements of a round
};

// Draws placements of groups of ops on single devices, has the oracle say what they come to, and
// learns from that, until the budget is spent; the best that was drawn, in its best order. Every
// draw counts, repeats too: a policy that has settled would go on for ever.
search::PlannerResult learn_placement(PlacerKind kind, const PlacerOptions& options,
                                      search::PlannerContext& context);

// Rows of the registry: reinforce, hrl, post, gdp.
std::vector<search::PlannerEntry> placer_entries();

}  // namespace heterog::learn
