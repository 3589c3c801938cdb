// A plan seen as a pipeline: what its stages do, and how long they stand still.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "sim/simulator.h"

namespace heterog::explain {

// The devices of a stage, of all pipelines side by side (decide/pass_turns.h says which they are).
// Times are those of the device that computes longest; they add up to the end of the last backward
// pass of all stages.
struct StageTime {
  std::vector<DeviceId> devices;
  Nanoseconds computes = 0;
  Nanoseconds fills = 0;    // idle until its longest forward op has run for the first time
  Nanoseconds bubbles = 0;  // idle from then to the end of its last backward op
  Nanoseconds drains = 0;   // idle after that
  Nanoseconds idle() const { return fills + bubbles + drains; }
};

struct PipelineTime {
  std::vector<StageTime> stages;  // in the order in which the forward pass goes through them
  std::int64_t micro_batches = 0;
  std::size_t slowest = 0;  // the stage that computes longest
  // The time that one micro-batch more would save, about: the slowest stage stands still in
  // proportion to the length of a micro-batch.
  Nanoseconds one_more_saves = 0;
};

// Nothing unless the strategy has several stages and several micro-batches.
std::optional<PipelineTime> pipeline_time(const cost::Problem& problem,
                                          const decide::Strategy& strategy,
                                          const sim::Simulated& simulated);

}  // namespace heterog::explain
