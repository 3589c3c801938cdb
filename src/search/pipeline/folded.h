// Pipelines that go through their devices there and back.
#pragma once

#include <span>
#include <vector>

#include "search/pipeline/cuts.h"

namespace heterog::search {

// Stages in the order of the model: one on each of the sets of devices, and from the last but one
// back to the first one more. Each set computes for equally long, as nearly as whole layers allow;
// all but the last with `part` of that before the model's middle. A stage is so half as long, and
// the later devices wait for half as much until the first micro-batch comes (as interleaved stages
// of Megatron-LM, Narayanan et al. 2021; the order is that of Hanayo's waves, Liu et al. 2023).
// Stages that would have no layers are left out.
std::vector<Stage> fold(const StageCosts& costs, std::span<const std::vector<DeviceId>> devices,
                        double part);

// The sets of devices of a cut folded, from its first stage on or from its last, with several parts
// there and in as many micro-batches or fewer: those of an estimate up to `most_seconds`, the best
// first.
std::vector<Cut> folded_cuts(const CutPool& pool, const Cut& cut, bool from_last,
                             double most_seconds);

// Folded pipelines are worth a try if their estimates are no further above that of what they are
// folded of: where the network is the limit they are.
inline constexpr double kHopefulFold = 1.15;

}  // namespace heterog::search
