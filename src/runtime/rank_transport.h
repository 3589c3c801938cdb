// All that a rank among processes talks by: TCP, on a GPU by way of pinned memory, and NCCL beside
// it where ranks have GPUs of their own.
#pragma once

#include <functional>
#include <memory>

#include "runtime/program.h"
#include "runtime/rendezvous.h"
#include "runtime/tcp_transport.h"
#include "runtime/transport.h"

namespace heterog::runtime {

class RankTransport {
 public:
  struct Options {
    DeviceId own;
    at::Device device = at::kCPU;
    std::chrono::milliseconds timeout{300'000};
  };
  // Every rank makes its own at the same time.
  RankTransport(const Job& job, const Meeting& meeting, const Options& options);
  ~RankTransport();

  Transport& get() { return *top_; }
  void finish() { tcp_.finish(); }
  void run_until_finished(const std::function<void()>& work) { tcp_.run_until_finished(work); }

 private:
  TcpTransport tcp_;
  std::unique_ptr<Transport> staged_;
  std::unique_ptr<Transport> direct_;
  std::unique_ptr<Transport> routed_;
  Transport* top_ = nullptr;
};

}  // namespace heterog::runtime
