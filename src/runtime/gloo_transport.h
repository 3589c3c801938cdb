// A Transport of processes: over TCP by PyTorch's Gloo, tensors of GPUs by way of pinned memory.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/store.h"
#include "runtime/transport.h"

namespace heterog::runtime {

struct GlooOptions {
  std::vector<std::string> device_names;  // one a rank, for messages
  DeviceSets sets;
  std::string address = "127.0.0.1";           // of this host: the one on which peers are accepted
  std::chrono::milliseconds timeout{300'000};  // of one call, and of making the connections
};

// "rank 1 (a/cpu1)".
std::string rank_text(DeviceId rank, const std::vector<std::string>& device_names);

// Ranks have connections of their own for each communicator: one for sending to higher ranks, one
// for sending to lower ones, one for all, one for each set; so no call waits for another's data.
class GlooTransport final : public Transport {
 public:
  // Every rank makes its own at the same time, from connections to one store.
  GlooTransport(const Store& store, DeviceId own, GlooOptions options);
  // Ends the job for the others, unless finish() was called.
  ~GlooTransport() override;

  void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) override;
  void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) override;
  void all_reduce(at::Tensor& value, std::size_t set) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override;
  std::vector<at::Tensor> gather_all(const at::Tensor& own) override;
  void abort(const std::string& reason) override;

  // The last call of every rank: waits until all have come, so that none takes the end of another
  // for a failure.
  void finish();
  // `work`, then finish(); if it throws, the others are told why.
  void run_until_finished(const std::function<void()>& work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heterog::runtime
