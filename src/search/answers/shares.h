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

// One way to share the batch, or each micro-batch of it.
struct Shares {
  Samples samples;  // of a micro-batch, all of it; 0: the device takes no part
  decide::Strategy strategy;
  Evaluation evaluation;
};

// What each device has of so many samples.
Samples samples_of(const cost::Problem& problem, const decide::UnitDecision& decision,
                   std::int64_t batch);
// Every group on the devices that have samples, in proportion to them.
decide::Strategy shares_strategy(const cost::Problem& problem, const Samples& samples);
// The same in the order and the buckets of DistributedDataParallel, of samples of a micro-batch.
decide::Strategy ddp_strategy(const cost::Problem& problem, const Samples& samples,
                              std::int64_t micro_batches);
// The same with gradients and optimizer state in shards, as fully_shard has them (fsdp2_plan.h).
decide::Strategy fsdp2_strategy(const cost::Problem& problem, const Samples& samples,
                                std::int64_t micro_batches);

// Whether shares are climbed from by moves of samples: always; if some were found that fit in
// memory; or never, and the first that fit are the answer.
enum class ClimbShares : std::uint8_t { kAlways, kIfTheyFit, kNever };

struct SharesOptions {
  std::int64_t evaluations = 1000;  // simulated plans at most, those of EV and CP apart
  // Every device takes so many passes, all of one size, before its gradients are summed: a divisor
  // of the batch.
  std::int64_t micro_batches = 1;
  bool as_ddp = false;     // in the order and the buckets of DistributedDataParallel alone
  bool in_shards = false;  // gradients and optimizer state by rows, on all devices that take part
  ClimbShares climb = ClimbShares::kAlways;
  double until = 1;  // the part of the evaluator's budget at which it ends
};

// All three at their best order (FIFO, rank, queued rank) and bucket (none,
// decide::kDdpBucketBytes) unless it is `as_ddp`, so that `best` gains over the others by its
// shares alone. `best` is never worse than they are.
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
