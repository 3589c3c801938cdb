// Gradient accumulation: the batch of each device in several parts, one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "compiler/strategy.h"
#include "cost/problem.h"

namespace heterog::compiler {

// Of ops in micro-batches, an instance each: twice those of the largest pipeline that was of use.
inline constexpr std::int64_t kMostInstances = std::int64_t{1} << 21;

// Throws an input error unless every op of the problem may have so many instances; before any
// memory is taken for them.
void check_instances(const cost::Problem& problem, std::int64_t of_each, std::string_view source);

// Decision 14. The strategy with its batch cut into so many micro-batches, as even as can be, one
// behind the other. Each is shared out as the batch was: over all of them, every entry of a unit's
// list has the samples that it had. Devices, synchronisation and servers stay; gradients are added
// up on their device and travel once (decision 4).
//
// Priorities put all of a micro-batch, forward and backward, before the next one, so that a device
// that never waits holds the activations of one at a time. A device that waits for others begins
// the next one meanwhile, as in a pipeline. What is read as a sum over the whole batch before the
// updates (a count of labels, statistics of the whole batch) is needed by the first micro-batch:
// all that it is made of comes first, of all micro-batches.
//
// The list of priorities is that of `problem`'s batch. Throws an input error unless `micro_batches`
// is from 1 to the batch; 1 is the strategy itself.
Strategy accumulate(const cost::Problem& problem, const Strategy& strategy,
                    std::int64_t micro_batches);

// The same in another order: the turn of an op of the forward or backward pass on a device in a
// micro-batch, from 0, among the turns of that device; lower ones first.
using TurnOf = std::function<std::int64_t(OpId op, DeviceId device, std::int64_t micro_batch)>;
Strategy in_turns(const cost::Problem& problem, const Strategy& strategy,
                  std::int64_t micro_batches, const TurnOf& turn);

// The second half of that: priorities for a strategy that is in so many micro-batches already, each
// beginning where the ones above begin.
Strategy with_turns(const cost::Problem& problem, Strategy strategy, std::int64_t micro_batches,
                    const TurnOf& turn);

// Where each micro-batch begins, and the end of the last.
std::vector<std::int64_t> micro_batch_boundaries(std::int64_t batch, std::int64_t micro_batches);
// Of what is `left` of each entry, its part of the next `samples`: in proportion, by largest
// remainder (ties: the earlier), and never more than is left.
std::vector<std::int64_t> next_part(const std::vector<std::int64_t>& left, std::int64_t samples);

// Ops of the forward and backward pass that lead to a sum over the whole batch which that pass
// reads. They belong to no micro-batch.
IdVector<OpId, std::uint8_t> needed_by_all(const cost::Problem& problem);

}  // namespace heterog::compiler
