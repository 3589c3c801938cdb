// The best plan of those that DistributedDataParallel can say.
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

// The best shares (search_shares()) of the whole batch, then of 2, 3, 4, … micro-batches
// (decide::kPipelineParts), as far as these divide the batch, until one fits and the next is no
// faster.
DdpPlan search_ddp(BatchEvaluator& evaluator);

// What the strategy says, if it is one of these, to the last decision.
std::optional<DdpPlan> exact_ddp(const cost::Problem& problem, const decide::Strategy& strategy);

}  // namespace heterog::search
