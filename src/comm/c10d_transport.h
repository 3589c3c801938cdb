// A Transport of processes over a backend of torch.distributed (c10d), of tensors in host memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/c10d_backends.h"
#include "comm/connections.h"
#include "comm/process_transport.h"
#include "comm/store.h"

namespace heterog::comm {

struct C10dOptions {
  ConnectOptions connect;  // its time-out is also that of a call, from beginning to end
  DeviceSets sets;
};

// Each set of a collective is a group of the backend, and so are all ranks, for messages. What a
// backend cannot do by itself is made of what it can: parts of different sizes of broadcasts and
// reductions to one member, sums of dtypes that it does not add of all addends.
//
// A backend does not say which peer it misses, and calls of it cannot be ended. So they are made on
// threads that are left behind with them (BoundedCalls), and ranks hold TCP connections over which
// nothing is sent: one that closes names the peer that is gone. Who does not come to a collective
// is known from the store, where those that wait say so.
class C10dTransport final : public ProcessTransport {
 public:
  // Every rank makes its own at the same time, from connections to one store.
  C10dTransport(const BackendKind& kind, const Store& store, DeviceId own, C10dOptions options);
  // Ends the job for the others, unless finish() was called.
  ~C10dTransport() override;

  void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) override;
  void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) override;
  void all_reduce(at::Tensor& value, std::size_t set) override;
  void reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) override;
  void all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override;
  std::vector<at::Tensor> gather_all(const at::Tensor& own) override;
  void check() override;
  void abort(const std::string& reason) override;
  void finish() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heterog::comm
