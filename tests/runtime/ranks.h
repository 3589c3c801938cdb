// Ranks of a job as threads of a test, each with a transport of its own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/network.h"
#include "runtime/rank_place.h"
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

inline std::vector<DeviceId> everyone(int ranks) {
  std::vector<DeviceId> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(static_cast<std::size_t>(rank));
  return all;
}

// Time-outs: of tests in which nobody is missed, and of those in which somebody is.
inline constexpr std::chrono::milliseconds kPatient{20'000};
inline constexpr std::chrono::milliseconds kHasty{600};

// Places of a job on a free port, of which rank 0 has the socket.
inline std::vector<RankPlace> places(int ranks) {
  const ListeningSocket socket = listen_on("127.0.0.1", 0);
  std::vector<RankPlace> places(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    places[rank].rank = rank;
    places[rank].world_size = ranks;
    places[rank].master_port = socket.port;
    places[rank].starter = "test";
  }
  places[0].listen_socket = socket.descriptor;
  return places;
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

// For tests in which ranks have to meet before the time-out of one of them passes: with more and
// more patience, as a busy machine may need. `attempt` says whether they had met.
template <class Attempt>
void with_patience(const Attempt& attempt) {
  for (const int milliseconds : {600, 5'000, 60'000}) {
    if (attempt(std::chrono::milliseconds(milliseconds))) return;
  }
  ADD_FAILURE() << "the ranks did not meet within a minute";
}

}  // namespace heterog::runtime
