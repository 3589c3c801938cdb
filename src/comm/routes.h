// Routes of a rank's tensors: through host memory, or straight from GPU to GPU.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace heterog::comm {

// The GPU of each rank, none where it runs on a CPU. Ranks can talk directly where all of them have
// one and no two the same.
using RankGpus = std::vector<std::string>;
bool talk_directly(const std::vector<DeviceId>& ranks, const RankGpus& gpus);

// One rank's: takes each call to the one of two transports that serves it.
struct Routes {
  std::vector<bool> sets;   // by index: directly
  std::vector<bool> peers;  // by rank
};
Routes direct_routes(DeviceId own, const DeviceSets& sets, const RankGpus& gpus);

// The same of ranks that are threads of one process: directly where all are on one device, whose
// memory is theirs too.
Routes one_device_routes(DeviceId own, const DeviceSets& sets,
                         const std::vector<at::Device>& devices);

// `direct` gets the tensors on GPUs that go to where the routes say so, and of which NCCL can sum
// the type; `host` all others, and what concerns all ranks.
class RoutedTransport final : public Transport {
 public:
  RoutedTransport(Transport& host, Transport& direct, Routes routes)
      : host_(host), direct_(direct), routes_(std::move(routes)) {}

  void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) override;
  void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) override;
  void all_reduce(at::Tensor& value, std::size_t set) override;
  void reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) override;
  void all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override;
  std::vector<at::Tensor> gather_all(const at::Tensor& own) override;
  void check() override;
  void abort(const std::string& reason) override;

 private:
  Transport& to_peer(const at::Tensor& value, DeviceId peer) const;
  Transport& to_set(const at::Tensor& value, std::size_t set) const;
  Transport& sums_in(const at::Tensor& value, std::size_t set) const;

  Transport& host_;
  Transport& direct_;
  const Routes routes_;
};

}  // namespace heterog::comm
