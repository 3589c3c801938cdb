// A communicator of NCCL, and what is under way over it. In builds with CUDA alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace heterog::comm {

struct NcclCommunicator {
  using Clock = std::chrono::steady_clock;

  std::vector<DeviceId> members;  // in the order of their NCCL ranks
  int own = 0;
  bool sums = false;  // of a set; else of a pair, of which the first sends
  c10::Device device = c10::Device(c10::kCPU);

  // A call that was enqueued, between two events of its stream.
  struct Call {
    explicit Call(c10::DeviceType type) : begin(type), end(type) {}
    c10::Event begin;
    c10::Event end;
    std::optional<Clock::time_point> runs_since;  // as it was seen to
  };

  // Held while NCCL is asked something of `comm`. A call that hangs in NCCL holds it for ever.
  std::timed_mutex calling;
  std::atomic<ncclComm_t> comm = nullptr;  // null: not made yet, or ended
  bool ended = false;                      // of what `calling` guards: made too late, if it is

  std::mutex mutex;        // of all that follows; never held while NCCL is asked
  std::deque<Call> calls;  // not seen to have ended
  std::uint64_t issued = 0;
  std::optional<Clock::time_point> asked_since;  // NCCL, by the thread that issues
};

// int16 has none.
ncclDataType_t nccl_type(at::ScalarType type);

// For the store, whose values are text.
std::string nccl_id_text(const ncclUniqueId& id);
ncclUniqueId parse_nccl_id(const std::string& text);

// Kernels that wait for a peer end, and nothing can be enqueued any more. All at the same time:
// what one frees may wait for the kernels of another. Waits for it up to `patience`, as the driver
// may hang. A thread that hangs in NCCL is let out by it: NCCL allows an abort meanwhile.
void end_communicators(const std::vector<std::shared_ptr<NcclCommunicator>>& communicators,
                       std::chrono::milliseconds patience);

}  // namespace heterog::comm
