// Makes backends of c10d. LibTorch's wheel has Gloo; UCC and MPI are in builds of one's own.
#define USE_C10D_GLOO  // which the headers ask for, not the library
#include "comm/c10d_backends.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace heterog::comm {
namespace {

using c10d::ProcessGroupGloo;

MakeBackend gloo_maker(const BackendOptions& options) {
  const auto device = ProcessGroupGloo::createDeviceForHostname(options.address);
  return [device, timeout = options.timeout](const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                             int ranks) {
    auto gloo = ProcessGroupGloo::Options::create(timeout);
    gloo->threads = 1;  // a rank has one call of a group at a time
    gloo->devices.push_back(device);
    return c10::intrusive_ptr<c10d::Backend>(
        c10::make_intrusive<ProcessGroupGloo>(store, rank, ranks, std::move(gloo)));
  };
}

}  // namespace

const std::vector<BackendKind>& c10d_backends() {
  static const std::vector<BackendKind> kinds{{"gloo", gloo_maker}};
  return kinds;
}

}  // namespace heterog::comm
