// What stands for GPUs in a build without CUDA.
#include "base/check.h"
#include "runtime/gpus.h"
#include "runtime/nccl_transport.h"

namespace heterog::runtime {

std::vector<Gpu> visible_gpus() { return {}; }

Bytes free_memory(std::size_t) {
  ENSURE(false);
  return 0;
}

std::string no_gpu_reason() { return "this build of heterog has no CUDA (preset cuda)"; }

std::unique_ptr<Transport> make_nccl_transport(const Store&, DeviceId, const NcclOptions&) {
  ENSURE(false);
  return nullptr;
}

}  // namespace heterog::runtime
