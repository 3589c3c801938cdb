// The best plan of those that DistributedDataParallel can say: shares of the batch, all at once or
// in micro-batches.
#pragma once

#include <optional>

#include "search/answers/shares.h"

namespace heterog::search {

struct DdpPlan {
  Samples samples;  // of each micro-batch; 0: the device takes no part
  std::int64_t micro_batches = 1;
  decide::Strategy strategy;
  Evaluation evaluation;
};

struct DdpOptions {
  // Simulated plans at most of the batch as a whole; of each number of micro-batches there are
  // 300.
  std::int64_t evaluations = 1000;
  bool as_ddp = true;      // as SharesOptions has it
  bool in_shards = false;  // as SharesOptions has it; asks for `as_ddp`
};

struct DdpResult {
  DdpPlan best;
  Shares even;          // EV of the batch as a whole
  Shares proportional;  // CP of it
};

// The best shares (search_shares()) of the whole batch if it fits, else of the fewest micro-batches
// that fit (decide::kPipelineParts, as far as these divide the batch); then of more of them, until
// the next two are no faster. Of what is left of a budget each number has at most half.
DdpResult search_ddp(BatchEvaluator& evaluator, const DdpOptions& options = {});

// What the strategy says, if it is one of these (`in_shards` or not), to the last decision.
std::optional<DdpPlan> exact_ddp(const cost::Problem& problem, const decide::Strategy& strategy,
                                 bool in_shards = false);

}  // namespace heterog::search
