// Ranks of a job as threads of a test, each with a transport of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/process_transport.h"
#include "comm/tcp_transport.h"
#include "comm/threads.h"

namespace heterog::comm {

using MakeTransport = std::function<std::unique_ptr<ProcessTransport>(
    const Store& store, DeviceId own, ConnectOptions connect, DeviceSets sets)>;

inline std::unique_ptr<ProcessTransport> make_tcp(const Store& store, DeviceId own,
                                                  ConnectOptions connect, DeviceSets sets) {
  return std::make_unique<TcpTransport>(
      store, own, TcpOptions{.connect = std::move(connect), .sets = std::move(sets)});
}

// Ranks in pairs, which are near each other; over three flows to others, whatever is sent.
inline std::unique_ptr<ProcessTransport> make_tcp_in_flows(const Store& store, DeviceId own,
                                                           ConnectOptions connect,
                                                           DeviceSets sets) {
  for (std::size_t rank = 0; rank < connect.device_names.size(); ++rank) {
    connect.flows.push_back(rank / 2 == own.value() / 2 ? 1 : 3);
  }
  return std::make_unique<TcpTransport>(
      store, own,
      TcpOptions{.connect = std::move(connect), .sets = std::move(sets), .flow_bytes = 1});
}

struct RanksOptions {
  DeviceSets sets;
  std::chrono::milliseconds timeout = kPatient;
  MakeTransport make = make_tcp;
};

// The same with transports over a store in memory; a rank that does not fail finishes.
inline std::vector<std::string> run_ranks(
    int ranks, const RanksOptions& options,
    const std::function<void(ProcessTransport&, std::size_t rank)>& body) {
  const Store store = make_local_store();
  return run_threads(ranks, [&](int rank) {
    const auto transport = options.make(
        store, DeviceId(static_cast<std::size_t>(rank)),
        {.device_names = device_names(ranks), .timeout = options.timeout}, options.sets);
    try {
      body(*transport, static_cast<std::size_t>(rank));
    } catch (const Error& error) {
      transport->abort(error.what());
      throw;
    }
    transport->finish();
  });
}

}  // namespace heterog::comm
