// The rows of a tensor that a device keeps.
#pragma once

#include <ATen/ATen.h>

#include "runtime/program/program.h"

namespace heterog::runtime {

// A view of these rows of the whole tensor; the tensor itself where the device keeps all of it.
inline at::Tensor own_part(const Program& program, TensorId tensor, const at::Tensor& whole) {
  const SlotId slot = program.slot_of[tensor];
  if (!slot.valid() || !program.slots[slot].is_part()) return whole;
  const Slot& kept = program.slots[slot];
  return whole.narrow(0, kept.begin, kept.end - kept.begin);
}

}  // namespace heterog::runtime
