// Calls wait in a row for those of the other members; the last to come does the work of all.
#include "comm/stub_nccl.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/fake_device.h"

namespace {

using heterog::comm::fake::Kernel;

enum class Kind : std::uint8_t { kPair, kAllReduce, kReduce, kBroadcast, kAllGather };

// One member's part of a call.
struct Part {
  Kind kind{};
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t op{};
  int root = 0;
  std::shared_ptr<Kernel> kernel;
};

struct Group {
  std::size_t ranks = 0;
  std::size_t joined = 0;
  std::vector<std::vector<std::optional<Part>>> calls;  // by number, then by rank
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  bool blocking = true;
  bool aborted = false;
  int questions = 0;  // left until the last call is done
  std::size_t issued = 0;
  std::vector<std::shared_ptr<Kernel>> kernels;
};

namespace {

std::mutex g_mutex;
// Threads that were left behind still wait for it when the process ends.
std::condition_variable& g_changed = *new std::condition_variable;
heterog::comm::stub_nccl::Faults g_faults;
heterog::comm::stub_nccl::Counts g_counts;
std::map<std::string, std::shared_ptr<Group>> g_groups;
int g_ids = 0;
thread_local std::uint64_t t_questions = 0;
thread_local bool t_in_group = false;
thread_local std::vector<ncclComm*> t_group;  // whose calls it holds

at::ScalarType scalar_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return at::kChar;
    case ncclUint8:
      return at::kByte;
    case ncclInt32:
      return at::kInt;
    case ncclInt64:
      return at::kLong;
    case ncclFloat16:
      return at::kHalf;
    case ncclFloat64:
      return at::kDouble;
    case ncclBfloat16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

at::Tensor tensor(const void* data, const Part& part) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(part.count)},
                       at::TensorOptions().dtype(scalar_type(part.type)));
}

void work(const std::vector<std::optional<Part>>& parts) {
  const Part& first = *parts.front();
  for (const std::optional<Part>& part : parts) {
    EXPECT_EQ(part->kind, first.kind) << "members make different calls";
    EXPECT_EQ(part->count, first.count);
    EXPECT_EQ(part->type, first.type);
    EXPECT_EQ(part->root, first.root);
  }
  const auto bytes = static_cast<std::size_t>(tensor(first.from, first).nbytes());
  if (first.kind == Kind::kPair) {
    const bool first_sends = first.from != nullptr;
    EXPECT_NE(first_sends, parts[1]->from != nullptr) << "one sends, the other receives";
    std::memcpy(parts[first_sends ? 1 : 0]->to, parts[first_sends ? 0 : 1]->from, bytes);
  } else if (first.kind == Kind::kBroadcast) {
    const void* from = parts[static_cast<std::size_t>(first.root)]->from;
    for (const std::optional<Part>& part : parts) std::memmove(part->to, from, bytes);
  } else if (first.kind == Kind::kAllGather) {
    for (const std::optional<Part>& part : parts) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        std::memcpy(static_cast<char*>(part->to) + i * bytes, parts[i]->from, bytes);
      }
    }
  } else {
    at::Tensor sum = tensor(first.from, first).clone();
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const at::Tensor next = tensor(parts[i]->from, first);
      sum = first.op == ncclMax ? at::maximum(sum, next) : sum.add(next);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (first.kind == Kind::kReduce && static_cast<int>(i) != first.root) continue;
      tensor(parts[i]->to, first).copy_(sum);
    }
  }
  for (const std::optional<Part>& part : parts) part->kernel->end();
}

ncclResult_t answer(ncclComm& comm) {
  if (comm.blocking) return ncclSuccess;
  comm.questions = g_faults.questions;
  return comm.questions > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t call(ncclComm& comm, Part part, cudaStream_t stream) {
  std::unique_lock lock(g_mutex);
  if (g_faults.refused_to == comm.rank) return ncclUnhandledCudaError;
  if (g_faults.hangs_for == comm.rank) {
    g_changed.wait(lock, [&] { return comm.aborted; });
    return ncclInvalidUsage;
  }
  if (comm.aborted || (comm.questions > 0 && !t_in_group)) return ncclInvalidUsage;
  ++g_counts.calls;
  part.kernel = heterog::comm::fake::launch_kernel(stream);
  comm.kernels.push_back(part.kernel);
  const std::size_t number = comm.issued++;
  auto& calls = comm.group->calls;
  if (calls.size() <= number) calls.resize(number + 1);
  calls[number].resize(comm.group->ranks);
  calls[number][static_cast<std::size_t>(comm.rank)] = part;
  bool all = true;
  for (const std::optional<Part>& one : calls[number]) all = all && one.has_value();
  if (all) work(calls[number]);
  if (!t_in_group) return answer(comm);
  t_group.push_back(&comm);
  return ncclSuccess;
}

}  // namespace

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 132;
  return cudaSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(g_mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &++g_ids, sizeof g_ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  heterog::comm::fake::use_current_device();
  std::unique_lock lock(g_mutex);
  auto& group = g_groups[std::string(id.internal, sizeof id.internal)];
  if (!group) group = std::make_shared<Group>();
  const std::shared_ptr<Group> own = group;
  own->ranks = static_cast<std::size_t>(ranks);
  auto* comm = new ncclComm{own, rank};
  const char* setting = std::getenv("NCCL_COMM_BLOCKING");
  comm->blocking = setting != nullptr ? *setting == '1' : config->blocking == 1;
  *made = comm;
  if (comm->blocking) ++g_counts.blocking;
  ++own->joined;
  g_changed.notify_all();
  if (!comm->blocking) return answer(*comm);
  g_changed.wait(lock, [&] { return own->joined == own->ranks; });
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  heterog::comm::fake::use_current_device();
  const std::lock_guard lock(g_mutex);
  ++g_counts.aborts;
  comm->aborted = true;  // not freed: a call that hangs still looks at it
  for (const std::shared_ptr<Kernel>& kernel : comm->kernels) kernel->end();
  g_changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  ++t_questions;
  const std::lock_guard lock(g_mutex);
  *error = ncclSuccess;
  if (g_faults.lost_for == comm->rank) {
    *error = ncclRemoteError;
  } else if (comm->questions > 0 || comm->group->joined < comm->group->ranks) {
    if (comm->questions > 0) --comm->questions;
    *error = ncclInProgress;
  }
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "unhandled cuda error";
}
const char* ncclGetLastError(ncclComm_t) { return "the stub says so"; }
ncclResult_t ncclGroupStart() {
  t_in_group = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const std::lock_guard lock(g_mutex);
  ++g_counts.groups;
  t_in_group = false;
  ncclResult_t result = ncclSuccess;
  for (ncclComm* comm : t_group) result = answer(*comm);
  t_group.clear();
  return result;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int,
                      ncclComm_t comm, cudaStream_t stream) {
  return call(*comm, {.kind = Kind::kPair, .from = from, .count = count, .type = type}, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(*comm, {.kind = Kind::kPair, .to = to, .count = count, .type = type}, stream);
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(*comm, {Kind::kAllReduce, from, to, count, type, op, 0, nullptr}, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(*comm, {Kind::kReduce, from, to, count, type, op, root, nullptr}, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call(*comm, {Kind::kBroadcast, from, to, count, type, ncclSum, root, nullptr}, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(*comm, {Kind::kAllGather, from, to, count, type, ncclSum, 0, nullptr}, stream);
}

namespace heterog::comm::stub_nccl {

void reset(const Faults& faults) {
  const std::lock_guard lock(g_mutex);
  g_faults = faults;
  g_counts = {};
  g_groups.clear();
}

void set_faults(const Faults& faults) {
  const std::lock_guard lock(g_mutex);
  g_faults = faults;
}

Counts counts() {
  const std::lock_guard lock(g_mutex);
  return g_counts;
}

std::uint64_t questions_of_this_thread() { return t_questions; }

}  // namespace heterog::comm::stub_nccl
