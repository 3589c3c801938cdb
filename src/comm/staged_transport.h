// Tensors of a device over a Transport of host memory: by way of pinned copies.
#pragma once

#include <c10/core/Event.h>

#include <deque>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace heterog::comm {

// A tensor that is sent is copied to the host on the calling thread's stream, which is waited for:
// a message holds what was written on that stream before the call. What arrives is copied to the
// device on that stream, and not waited for: it is there for all that comes after on it. Memory of
// the host is kept until the device has copied from it. Tensors on the CPU pass through.
class StagedTransport final : public Transport {
 public:
  explicit StagedTransport(Transport& host) : host_(host) {}
  ~StagedTransport() override;
  StagedTransport(const StagedTransport&) = delete;
  StagedTransport& operator=(const StagedTransport&) = delete;

  void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) override;
  void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) override;
  void all_reduce(at::Tensor& value, std::size_t set) override;
  void reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) override;
  void all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override;
  std::vector<at::Tensor> gather_all(const at::Tensor& own) override;
  void check() override;
  void abort(const std::string& reason) override { host_.abort(reason); }

 private:
  struct Copy {
    c10::Event done;
    at::Tensor host;
  };
  // Copies under way, of the one thread that receives or that takes part in collectives.
  using Lane = std::deque<Copy>;
  static void drop_done(Lane& lane);
  static void copy_in(at::Tensor& value, at::Tensor host, Lane& lane);

  Transport& host_;
  Lane received_;
  Lane reduced_;
};

}  // namespace heterog::comm
