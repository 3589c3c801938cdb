// The order in which a stage takes the forward and backward passes of micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "decide/strategy.h"

namespace heterog::decide {

// The turns of a stage, of `stages`, at which it runs the forward and backward pass of each
// micro-batch: from 0, all different; of kDepthFirst both passes of a micro-batch are one turn.
struct StageTurns {
  std::vector<std::int64_t> forward;
  std::vector<std::int64_t> backward;
};
// Not of kNone.
std::vector<StageTurns> stage_turns(Pattern pattern, std::size_t stages,
                                    std::int64_t micro_batches);

}  // namespace heterog::decide
