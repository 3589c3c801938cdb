// The best shares of the batch for plain data parallelism: a whole replica on each device that gets
// samples, gradients by all-reduce.
#pragma once

#include <cstdint>

#include "search/planner.h"
#include "space/balance.h"

namespace heterog::search {

using space::balance;
using space::ModelSeconds;
using space::Samples;

// One way to share the batch.
struct Shares {
  Samples samples;  // they add up to the batch; 0: the device takes no part
  decide::Strategy strategy;
  Evaluation evaluation;
};

// Every group on the devices that have samples, in proportion to them.
decide::Strategy shares_strategy(const cost::Problem& problem, const Samples& samples);

struct SharesOptions {
  std::int64_t evaluations = 1000;  // simulated plans at most, those of EV and CP apart
};

// All three at their best order (FIFO, rank, queued rank) and bucket (none,
// decide::kDdpBucketBytes), so that `best` gains over the others by its shares alone. `best` is
// never worse than they are.
struct SharesResult {
  Shares best;
  Shares even;          // EV
  Shares proportional;  // CP
  std::int64_t evaluations = 0;
};

// Starts from EV, CP, devices balanced by computed time within their memory, and the same with some
// devices left out; then moves samples between devices and sets of devices, in ever smaller
// numbers, as long as the simulated step gets shorter. Deterministic.
SharesResult search_shares(BatchEvaluator& evaluator, const SharesOptions& options = {});

}  // namespace heterog::search
