// The GPUs that this process can use, as their driver describes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace heterog::launch {

struct Gpu {
  std::string type;        // of device types, where the name is one of them: "A100-SXM4-40GB"
  Bytes memory_bytes = 0;  // in all
  std::string id;          // of this GPU among all of all hosts
  int multiprocessors = 0;
};

// By index. Empty without a GPU, without a driver, and in a build without CUDA.
std::vector<Gpu> visible_gpus();

// Memory that tensors can have of a visible GPU, now. Makes this process a user of that GPU.
Bytes free_memory(std::size_t index);

// Why there is none: "this build of heterog has no CUDA", "there is no GPU here".
std::string no_gpu_reason();

// "Tesla V100-PCIE-16GB" → "V100-PCIE-16GB", "NVIDIA H200" → "H200-SXM5-141GB".
std::string gpu_type(std::string_view driver_name);

// Processors are named CPU…; every other type of device is a GPU.
bool is_cpu_type(std::string_view type);

}  // namespace heterog::launch
