// Where a batch fits in no way that was tried: what would.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cost/problem.h"
#include "graph/known_batches.h"
#include "oracle/oracle.h"

namespace heterog::search {

// One way to train, on plain data parallelism over all devices or on one device.
struct Fit {
  std::int64_t batch = 0;
  std::int64_t micro_batches = 1;
  Nanoseconds step = 0;
  std::string planner;  // "cp-ar"
};
struct WhatFits {
  std::int64_t asked = 0;            // the batch that did not fit
  std::optional<Fit> whole;          // the largest batch that does
  std::optional<Fit> micro_batches;  // in micro-batches one after the other: the batch in the
                                     // fewest that do, else the largest batch
  std::optional<Fit> recomputing;    // with forward passes again for backward passes
};

// How other batches are tried.
struct OtherBatches {
  // The same problem at another batch.
  std::function<std::unique_ptr<const cost::Problem>(std::int64_t batch)> problem_at;
  // What strategies of a problem cost; the problem outlives it.
  std::function<std::unique_ptr<oracle::Oracle>(const cost::Problem& problem)> oracle_of;
};

// Bisects the batches for which the graph is known to hold, up to that of `problem`.
// Memory grows with the batch, so what it finds is the largest but for chance.
WhatFits what_fits(const cost::Problem& problem, const graph::KnownBatches& known,
                   const OtherBatches& others);

}  // namespace heterog::search
