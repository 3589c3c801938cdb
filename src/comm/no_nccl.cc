// What stands for NCCL in a build without CUDA.
#include "base/check.h"
#include "comm/nccl_transport.h"

namespace heterog::comm {

std::unique_ptr<Transport> make_nccl_transport(const Store&, DeviceId, const NcclOptions&) {
  ENSURE(false);
  return nullptr;
}

}  // namespace heterog::comm
