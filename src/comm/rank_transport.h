// All that a rank among processes talks by: TCP or a backend of c10d, on a GPU by way of pinned
// memory, and NCCL beside it where ranks have GPUs of their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/connections.h"
#include "comm/device_sets.h"
#include "comm/process_transport.h"
#include "comm/routes.h"
#include "comm/store.h"
#include "comm/transport.h"

namespace heterog::comm {

// By what tensors in host memory travel between processes: our own TCP, or one of those backends of
// c10d that this build has. The first is the default.
std::vector<std::string> transport_names();
// Throws an input error that begins with `field` where there is none of that name.
void check_transport(const std::string& name, const std::string& field);

class RankTransport {
 public:
  struct Options {
    DeviceId own;
    at::Device device = at::kCPU;
    ConnectOptions connect;
    RankGpus gpus;  // one a rank
    std::string transport = transport_names().front();
  };
  // Every rank makes its own at the same time.
  RankTransport(const Store& store, const Traffic& traffic, const Options& options);
  ~RankTransport();

  Transport& get() { return *top_; }
  void finish() { host_->finish(); }
  void run_until_finished(const std::function<void()>& work) { host_->run_until_finished(work); }

 private:
  std::unique_ptr<ProcessTransport> host_;
  std::unique_ptr<Transport> staged_;
  std::unique_ptr<Transport> direct_;
  std::unique_ptr<Transport> routed_;
  Transport* top_ = nullptr;
};

}  // namespace heterog::comm
