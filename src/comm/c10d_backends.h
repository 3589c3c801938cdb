// The backends of torch.distributed (c10d) that this build can make, by name.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace heterog::comm {

// Meets the other ranks of a group at the store, which is the group's alone, and connects to them:
// blocks, and throws what LibTorch throws.
using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks)>;

struct BackendOptions {
  std::string address;                         // of this host: the one on which peers are accepted
  std::chrono::milliseconds timeout{300'000};  // of a call
};

struct BackendKind {
  const char* name;
  MakeBackend (*maker)(const BackendOptions& options);  // one for all groups of a rank
};
// Those for tensors in host memory.
const std::vector<BackendKind>& c10d_backends();

}  // namespace heterog::comm
