// Kinds of device that count as GPUs: operators that GPUs alone have are called there.
#pragma once

#include <ATen/ATen.h>

#include <atomic>

namespace heterog::runtime {

// A kind of device that counts as a GPU beside CUDA's: in tests, one whose launches are counted.
inline std::atomic<at::DeviceType> gpu_stand_in{at::kCUDA};

inline bool has_gpu_kernels(at::Device device) {
  return device.is_cuda() || device.type() == gpu_stand_in.load(std::memory_order_relaxed);
}

}  // namespace heterog::runtime
