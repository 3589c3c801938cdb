// A communicator of NCCL, and what is under way over it. In builds with CUDA alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace heterog::comm {

struct NcclCommunicator {
  std::vector<DeviceId> members;  // in the order of their NCCL ranks
  int own = 0;
  bool sums = false;  // of a set; else of a pair, of which the first sends

  // What was enqueued, between two events of its stream.
  struct Call {
    c10::Event begin{c10::kCUDA};
    c10::Event end{c10::kCUDA};
    std::optional<std::chrono::steady_clock::time_point> runs_since;  // as it was seen to
  };

  std::mutex mutex;           // of all that follows
  ncclComm_t comm = nullptr;  // null: not made yet, or ended
  std::deque<Call> calls;     // not seen to have ended
  std::uint64_t issued = 0;
};

// int16 has none.
ncclDataType_t nccl_type(at::ScalarType type);

// For the store, whose values are text.
std::string nccl_id_text(const ncclUniqueId& id);
ncclUniqueId parse_nccl_id(const std::string& text);

// Kernels that wait for a peer end, and nothing can be enqueued any more. All at the same time:
// what one frees may wait for the kernels of another. Waits for it up to `patience`, as the driver
// may hang.
void end_communicators(const std::vector<NcclCommunicator*>& communicators,
                       std::chrono::milliseconds patience);

}  // namespace heterog::comm
