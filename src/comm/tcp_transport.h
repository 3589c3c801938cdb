// A Transport of processes: over TCP, of tensors in host memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/connections.h"
#include "comm/process_transport.h"
#include "comm/store.h"

namespace heterog::comm {

struct TcpOptions {
  ConnectOptions connect;  // its time-out is also that of a call in which nothing moves
  DeviceSets sets;
  Bytes flow_bytes = cluster::kFlowBytes;  // what has more goes over all flows to a rank
};

class TcpTransport final : public ProcessTransport {
 public:
  // Every rank makes its own at the same time, from connections to one store.
  TcpTransport(const Store& store, DeviceId own, TcpOptions options);
  // Ends the job for the others, unless finish() was called.
  ~TcpTransport() override;

  bool messages_side_by_side() const override { return true; }
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
