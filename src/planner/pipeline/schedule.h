// The order in which a stage takes the forward and backward passes of micro-batches.
#pragma once

#include <cstdint>
#include <vector>

namespace heterog::planner {

enum class Schedule : std::uint8_t {
  kForwardFirst,           // GPipe: all forward passes, then all backward passes
  kOneForwardOneBackward,  // PipeDream: one of each in turns, once the stages behind are busy
  kListed,                 // SPP's PE: one micro-batch at a time over each block, round and round
};

// The turns of a stage, of `stages`, at which it runs the forward and backward pass of each
// micro-batch: from 0, all different.
struct StageTurns {
  std::vector<std::int64_t> forward;
  std::vector<std::int64_t> backward;
};
std::vector<StageTurns> stage_turns(Schedule schedule, std::size_t stages,
                                    std::int64_t micro_batches);

}  // namespace heterog::planner
