// Replicas of a pipeline side by side: stages of as many devices each, by estimate.
#pragma once

#include <cstddef>

#include "search/pipeline/cuts.h"

namespace heterog::search {

// The most devices of a stage that are tried.
inline constexpr std::size_t kMostReplicas = 8;

// Adds to `pool` the best cut of each promising choice of stages of so many devices each, in each
// of its numbers of micro-batches, with samples of its own; in no particular order. The devices of
// a stage are neighbours in a promising line, or those of a replica are.
void add_cuts_of_replicas(const cost::Problem& problem, CutPool& pool, std::size_t stages,
                          std::size_t replicas, oracle::Oracle& oracle);

}  // namespace heterog::search
