// A Transport among ranks that have GPUs of their own: by NCCL, from GPU to GPU.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/store.h"
#include "comm/transport.h"

namespace heterog::comm {

// The same on all ranks of the job but for `device`.
struct NcclOptions {
  std::vector<std::string> device_names;             // one a rank, for messages
  DeviceSets sets;                                   // by the job's index; empty: not by NCCL
  std::vector<std::pair<DeviceId, DeviceId>> pairs;  // who sends to whom
  c10::Device device = c10::Device(c10::kCPU);
  std::chrono::milliseconds timeout{300'000};  // of one call, and of making the connections
};

// Every rank of a set or pair makes its own at the same time, from connections to one store; all
// memory that NCCL needs is taken here. Calls only enqueue; what becomes of them is watched by a
// thread, which ends the job if a peer is lost or late. Only tensors of `device`, only over the
// sets and pairs given; gather_all is not served. In builds with CUDA alone.
std::unique_ptr<Transport> make_nccl_transport(const Store& store, DeviceId own,
                                               const NcclOptions& options);

}  // namespace heterog::comm
