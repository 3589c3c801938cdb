// Ranks of a job as threads of a test, each with a transport of its own.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/tcp_transport.h"

namespace heterog::runtime {

inline std::vector<std::string> device_names(int ranks) {
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) names.push_back("host/cpu" + std::to_string(rank));
  return names;
}

inline std::vector<DeviceId> devices(std::initializer_list<int> ids) {
  std::vector<DeviceId> devices;
  for (const int id : ids) devices.emplace_back(static_cast<std::size_t>(id));
  return devices;
}

// What each rank failed with; empty where it did not.
template <class Body>
std::vector<std::string> run_threads(int ranks, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

struct RanksOptions {
  DeviceSets sets;
  std::chrono::milliseconds timeout{20'000};
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

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace heterog::runtime
