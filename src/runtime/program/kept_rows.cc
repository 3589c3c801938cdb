// Reads it off the slots.
#include "runtime/program/kept_rows.h"

namespace heterog::runtime {

std::vector<KeptRows> kept_rows(const Job& job, TensorId tensor) {
  std::vector<KeptRows> parts;
  for (DeviceId rank : id_range<DeviceId>(job.programs.size())) {
    const Program& program = job.programs[rank];
    const SlotId slot = program.slot_of[tensor];
    if (!slot.valid()) continue;
    if (!program.slots[slot].is_part()) return {};
    parts.push_back({rank, program.slots[slot].begin, program.slots[slot].end});
  }
  return parts;
}

}  // namespace heterog::runtime
