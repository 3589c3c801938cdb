// What stands for GPUs in a build without CUDA.
#include "base/check.h"
#include "launch/gpu_parts.h"
#include "launch/gpus.h"

namespace heterog::launch {

std::vector<Gpu> visible_gpus() { return {}; }

Bytes free_memory(std::size_t) {
  ENSURE(false);
  return 0;
}

std::vector<PartStreams> streams_of_parts(c10::Device, const std::vector<int>&) {
  ENSURE(false);
  return {};
}

std::string no_gpu_reason() {
  return "this build of heterog has no CUDA: install heterog-cu13, or build the preset cuda";
}

}  // namespace heterog::launch
