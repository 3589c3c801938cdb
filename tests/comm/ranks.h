// Ranks of a job as threads of a test, each with a transport of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/tcp_transport.h"
#include "comm/threads.h"

namespace heterog::comm {

struct RanksOptions {
  DeviceSets sets;
  std::chrono::milliseconds timeout = kPatient;
};

// The same with transports over a store in memory; a rank that does not fail finishes.
inline std::vector<std::string> run_ranks(
    int ranks, const RanksOptions& options,
    const std::function<void(TcpTransport&, std::size_t rank)>& body) {
  const Store store = make_local_store();
  return run_threads(ranks, [&](int rank) {
    TcpTransport transport(
        store, DeviceId(static_cast<std::size_t>(rank)),
        {.connect = {.device_names = device_names(ranks), .timeout = options.timeout},
         .sets = options.sets});
    try {
      body(transport, static_cast<std::size_t>(rank));
    } catch (const Error& error) {
      transport.abort(error.what());
      throw;
    }
    transport.finish();
  });
}

}  // namespace heterog::comm
