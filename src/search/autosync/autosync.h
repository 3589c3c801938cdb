// Planner "autosync": AutoSync's search for how each parameter of a data parallel step is
// synchronised (docs/planners.md).
#pragma once

#include <cstdint>
#include <string>

#include "search/registry.h"

namespace heterog::search {

enum class RankerKind : std::uint8_t {
  kLinear,   // learnt from the strategies tried so far
  kFormula,  // equations 1 to 3
  kNone,     // every candidate is as good as another
};

struct AutosyncOptions {
  std::int64_t trials = 200;
  std::int64_t round = 20;         // tried at a time, between which the ranker learns
  std::int64_t candidates = 2000;  // drawn for a round
  RankerKind ranker = RankerKind::kLinear;
  std::string predictor;  // file of a ranker that was taught before; empty: none
};

PlannerEntry autosync_entry();

}  // namespace heterog::search
