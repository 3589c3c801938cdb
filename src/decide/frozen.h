// Frozen tensors that lie in rows: which may, and how many times a pass gathers each.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/recomputation.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Parameters and buffers that forward and backward ops read and no op of a step replaces, nor
// belongs to the update of; ascending. The exporter writes the weights of a model that want no
// gradient as buffers.
std::vector<TensorId> frozen_tensors(const cost::Problem& problem);

// Those whose method is kGathered: by themselves, or by the unit of their first reader.
std::vector<TensorId> frozen_to_gather(const cost::Problem& problem, const Strategy& strategy);

// Of the parameters whose method is kGathered, what is trained becomes sharded. Each frozen tensor
// to gather is dealt by rows, if it can be (decision 23): every device that holds it gets a row,
// and whatever reads it runs on all of these devices. Any other stays whole.
void settle_frozen(const cost::Problem& problem, const Strategy& strategy, Layout& layout);

// The two passes of a step. What runs again for the backward pass is part of it.
enum class Pass : std::uint8_t { kForward, kBackward };

// A frozen tensor as one pass uses it.
struct PassUse {
  Pass pass = Pass::kForward;
  TensorId tensor;
  // The most instances that a device has of a reader: so many times it is gathered, once for the
  // first instance on each device, once for the second, and so on.
  std::size_t rounds = 0;
};
// Of all that lie in rows: pass by pass, in the order of their first readers.
std::vector<PassUse> uses_of_frozen(const cost::Problem& problem, const Layout& layout,
                                    const Recomputation& recomputation);

}  // namespace heterog::decide
