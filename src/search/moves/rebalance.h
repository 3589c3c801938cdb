// Moves of samples between devices, by how long each computes in the simulated step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/rng.h"
#include "search/moves/move.h"
#include "space/group_summary.h"

namespace heterog::search {

// Slices as whole samples, so that a weight of one is one sample.
Replicas in_samples(const Replicas& replicas, std::int64_t batch);

// `replicas`, in samples, with `samples` of each giver at the takers instead, spread evenly; what a
// giver does not have it does not give. Empty if no giver has any.
Replicas moved(const Replicas& replicas, std::span<const DeviceId> givers,
               std::span<const DeviceId> takers, std::int64_t samples, std::int64_t batch);

// These slices of the strategy, with samples moved among their devices so that all of them
// would compute for equally long; only a part of it, by `damping`, for what else they compute moves
// too.
Replicas level(const cost::Problem& problem, const space::GroupSummaries& groups,
               const Incumbent& from, const Replicas& share, double damping);

// Samples from a device that computes for long to one that does not and has memory left, or between
// all devices of their types: so many that both would compute for as long, more or less. Of all
// that the giver holds, of the groups with the slices of group `around`, or of a stretch of those;
// or between all devices of those slices at once (`level`). Nothing if the devices are balanced
// already, the giver has no sample of `around` (fewer samples than devices), or the oracle does not
// know how long they compute.
std::optional<Move> rebalance(const cost::Problem& problem, const space::GroupSummaries& groups,
                              const Incumbent& from, GroupId around, Rng& rng);

}  // namespace heterog::search
