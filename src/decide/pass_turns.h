// Whose turn it is on a device: the stage that it is of its pipeline, and by the strategy's pattern
// the turn of every forward and backward pass of a micro-batch there.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/patterns.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Where a device stands in a pipeline: stage `stage` of `stages`.
struct StageOfDevice {
  std::uint32_t stage = 0;
  std::uint32_t stages = 1;
};

// Whether all that the op makes is the same on all slices: such ops run wherever somebody reads
// them.
bool same_everywhere(const cost::Problem& problem, OpId op);

// Devices of one pipeline that run most of their forward ops together are one stage; stages follow
// one another as their forward ops do, in the mean. Of pipelines whose stages share no device these
// are the stages that the planner cut; of anything else, what comes nearest.
IdVector<DeviceId, StageOfDevice> stages_of_devices(const cost::Problem& problem,
                                                    const Strategy& strategy, const Layout& layout);

// Ops of the forward and backward pass that lead to a sum over the whole batch which that pass
// reads. They belong to no micro-batch.
IdVector<OpId, std::uint8_t> needed_by_all(const cost::Problem& problem);

// Ops of the backward pass whose results no backward op of another unit waits for: those that make
// gradients of parameters. A stage may put them off without holding up the others.
IdVector<OpId, std::uint8_t> makes_gradients(const cost::Problem& problem,
                                             const IdVector<OpId, UnitId>& unit_of_op);

// The turns of a strategy in several micro-batches, with a pattern.
class PassTurns {
 public:
  PassTurns(const cost::Problem& problem, const Strategy& strategy, const Layout& layout);

  // Whether the op runs once for each micro-batch, and may be told when. Updates do not, nor what
  // every micro-batch needs of all others, nor what runs once a device.
  bool has_turns(OpId op) const { return has_turns_[op] != 0; }
  // Whether it has none because it waits until its device has nothing else to do
  // (Pattern::kZeroBubble).
  bool is_put_off(OpId op) const { return put_off_[op] != 0; }
  // The turn of an op that has turns or is put off, on a slice that begins with this sample.
  std::int64_t turn(OpId op, DeviceId device, std::int64_t begin) const;
  std::uint32_t stage(DeviceId device) const { return of_device_[device].stage; }
  // A number greater than the turns of any device.
  std::int64_t bound() const { return 2 * static_cast<std::int64_t>(begins_.size()); }

 private:
  const graph::ModelGraph& graph_;
  std::vector<std::int64_t> begins_;  // of the micro-batches
  IdVector<OpId, std::uint8_t> has_turns_, put_off_;
  IdVector<DeviceId, StageOfDevice> of_device_;
  std::vector<std::vector<StageTurns>> of_count_;  // [stages][stage], where there are so many
};

// Whether forward passes of a strategy with a pattern read those of the same or an earlier stage of
// their pipeline alone, and backward passes those of the same or a later one, so that strict turns
// go with the dependencies.
bool stages_in_line(const cost::Problem& problem, const Strategy& strategy);

// Ops that have turns, but are in none of them: what adds up gradients of several units.
IdVector<OpId, std::uint8_t> ops_between_turns(const cost::Problem& problem,
                                               const IdVector<OpId, UnitId>& unit_of_op);

// The priorities that OrderPolicy::kPriority follows: the strategy's own priorities, or those of
// its pattern, by which earlier turns come first, before all of them what has none, and behind all
// what is put off. Empty under other orders.
std::vector<OpPriority> priorities_of(const cost::Problem& problem, const Strategy& strategy,
                                      const Layout& layout);

}  // namespace heterog::decide
