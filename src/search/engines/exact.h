// The best of all strategies of a small space: what searches are measured against.
#pragma once

#include <cstdint>

#include "search/engines/exact_ops.h"
#include "search/registry.h"

namespace heterog::search {

enum class ExactSpace : std::uint8_t { kBlocks, kOps };

struct ExactOptions {
  std::int64_t units = 6;   // consecutive layers that decide for themselves; 0: no placements
  std::int64_t layers = 4;  // that pipelines are cut from; 0: no pipelines
  ExactSpace space = ExactSpace::kBlocks;
  ExactOrders orders = ExactOrders::kRank;
};

// Two spaces, of both the best:
//
//   placements   each unit takes a row of space::ActionSpace, in each of decide::kSearchedOrders.
//                Branch and bound, unit by unit: a branch ends where what its units compute on one
//                device, or all units on all devices at the least, takes longer than the best so
//                far
//   pipelines    every cut of the layers into stages, every choice of devices for each stage, 2, 3,
//                4, 6 and 8 micro-batches, every schedule, strictly and as priorities
//
// A third one by itself is that of single devices (exact_ops.h).
//
// On up to 4 devices. Says in `found_by` over how many strategies it is the best, or that the
// budget ended before.
std::vector<PlannerEntry> exact_entries();

}  // namespace heterog::search
