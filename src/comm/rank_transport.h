// All that a rank among processes talks by: TCP, on a GPU by way of pinned memory, and NCCL beside
// it where ranks have GPUs of their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/device_sets.h"
#include "comm/routes.h"
#include "comm/store.h"
#include "comm/tcp_transport.h"
#include "comm/transport.h"

namespace heterog::comm {

class RankTransport {
 public:
  struct Options {
    DeviceId own;
    at::Device device = at::kCPU;
    ConnectOptions connect;
    RankGpus gpus;  // one a rank
  };
  // Every rank makes its own at the same time.
  RankTransport(const Store& store, const Traffic& traffic, const Options& options);
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

}  // namespace heterog::comm
