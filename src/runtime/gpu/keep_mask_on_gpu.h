// The kernel of keep_mask.cu, where this build has it and the GPU can run it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace heterog::runtime {

// The rule by which an element is kept: element i of block b lies at b · length + i of the mask,
// and is kept if the upper 53 bits of the hash of `key` and its index, b · stride + offset + i, are
// at least `least`.
struct KeepRule {
  std::uint64_t key = 0;
  std::uint64_t least = 0;
  std::int64_t blocks = 0;
  std::int64_t length = 0;
  std::int64_t stride = 0;
  std::int64_t offset = 0;
};

// Fills `mask`, bool and contiguous on a GPU, on the stream of the calling thread. False where
// there is no such kernel: nothing is done. An error of the device is one of c10's.
bool fill_kept_on_gpu(const at::Tensor& mask, const KeepRule& rule);

}  // namespace heterog::runtime
