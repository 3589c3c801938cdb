// Memory of this process's tensors on a device, as its allocator counts it.
#pragma once

#include <ATen/ATen.h>

#include "base/units.h"

namespace heterog::runtime {

// On CPUs PyTorch does not count. From now on this process does: what was allocated before is not
// counted, now or when it is given back. For a process that runs one rank; threads that are ranks
// share a count. On other devices PyTorch's allocator counts by itself, and this does nothing.
void count_tensor_memory(at::Device device);

struct TensorMemory {
  Bytes now = 0;
  Bytes most = 0;      // since begin_most()
  Bytes reserved = 0;  // at most since then: what the allocator has of the device; 0 on CPUs
};
// Zeros where nothing is counted, or was allocated.
TensorMemory tensor_memory(at::Device device);
void begin_most(at::Device device);

}  // namespace heterog::runtime
