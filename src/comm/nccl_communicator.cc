// Types, ids, and the end of communicators.
#include "comm/nccl_communicator.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <condition_variable>
#include <memory>
#include <thread>

#include "base/check.h"

namespace heterog::comm {

// For a call of NCCL to return: it only enqueues, unless it hangs.
constexpr std::chrono::milliseconds kCallTime{500};

ncclDataType_t nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::kChar:
      return ncclInt8;
    default:
      ENSURE(type == at::kByte || type == at::kBool);
      return ncclUint8;
  }
}

std::string nccl_id_text(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  return text;
}

ncclUniqueId parse_nccl_id(const std::string& text) {
  ncclUniqueId id;
  ENSURE(text.size() == 2 * sizeof id.internal);
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

void end_communicators(const std::vector<std::shared_ptr<NcclCommunicator>>& communicators,
                       std::chrono::milliseconds patience) {
  struct Left {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t count = 0;
  };
  const auto left = std::make_shared<Left>();
  left->count = communicators.size();
  for (const std::shared_ptr<NcclCommunicator>& communicator : communicators) {
    std::thread([left, communicator] {
      const c10::DeviceGuard on_its_device(communicator->device);
      {
        std::unique_lock calling(communicator->calling, kCallTime);
        if (calling.owns_lock()) communicator->ended = true;
        if (ncclComm_t comm = communicator->comm.exchange(nullptr)) ncclCommAbort(comm);
      }
      const std::lock_guard lock(left->mutex);
      --left->count;
      left->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(left->mutex);
  left->changed.wait_for(lock, patience, [&] { return left->count == 0; });
}

}  // namespace heterog::comm
