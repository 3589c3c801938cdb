// The batch in several parts, one after the other: which slices they come to.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Of ops in micro-batches, an instance each: twice those of the largest pipeline that was of use.
inline constexpr std::int64_t kMostInstances = std::int64_t{1} << 21;

// Throws an input error unless every op of the problem may have so many instances; before any
// memory is taken for them.
void check_instances(const cost::Problem& problem, std::int64_t of_each, std::string_view source);
std::int64_t most_instances_of_each(const cost::Problem& problem);
// The most that an op of the strategy may have.
std::int64_t most_instances(const Strategy& strategy, std::int64_t batch);

// Gradient accumulation (decision 14): the strategy with its batch cut into so many micro-batches,
// or each of its micro-batches into so many. Devices, synchronisation and servers stay; gradients
// are added up on their device and travel once (decision 4). A strategy that had no pattern gets
// Pattern::kDepthFirst: a device that never waits holds the activations of one micro-batch at a
// time; one that waits for others begins the next meanwhile, as in a pipeline.
//
// Throws an input error unless all of them are from 1 to the batch; 1 is the strategy itself.
Strategy accumulate(const cost::Problem& problem, Strategy strategy, std::int64_t micro_batches);

// Whether it does not throw.
bool can_accumulate(const cost::Problem& problem, const Strategy& strategy,
                    std::int64_t micro_batches);

// Of kPipelineParts (decide/decisions.h) those that the strategy can be cut into.
std::vector<std::int64_t> possible_parts(const cost::Problem& problem, const Strategy& strategy);

// The strategy as a pipeline: the devices of its units are the stages, which take so many
// micro-batches in turns, put off gradients of parameters until they idle, and improve this order
// by one schedule of its own (decision 17), whatever schedule it had before. With 1 the batch is
// taken as a whole. Throws as accumulate() does.
Strategy in_pipeline(const cost::Problem& problem, Strategy strategy, std::int64_t micro_batches);

// The slices of a decision of this strategy, one micro-batch after the other, in the order of the
// replicas; empty ones left out. Of every part of a micro-batch, each replica has its share of what
// is left to it, by largest remainder.
std::vector<Slice> slices_of(const Strategy& strategy, const UnitDecision& decision,
                             std::int64_t batch);

// Of pipelines side by side, the one that a device belongs to.
inline std::uint32_t pipeline_of(const Strategy& strategy, DeviceId device) {
  return strategy.pipeline_of.empty() ? 0 : strategy.pipeline_of[device];
}

// Where each micro-batch begins, and the end of the last.
std::vector<std::int64_t> micro_batch_boundaries(std::int64_t batch, std::int64_t micro_batches);
// The micro-batch that a sample belongs to.
std::int64_t micro_batch_of(const std::vector<std::int64_t>& boundaries, std::int64_t sample);

}  // namespace heterog::decide
