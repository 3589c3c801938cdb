// Ranks of a job as threads of a test.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "cluster/cluster.h"

namespace heterog::comm {

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

// For tests in which ranks have to meet before the time-out of one of them passes: with more and
// more patience, as a busy machine may need. `attempt` says whether they had met.
template <class Attempt>
void with_patience(const Attempt& attempt) {
  for (const int milliseconds : {600, 5'000, 60'000}) {
    if (attempt(std::chrono::milliseconds(milliseconds))) return;
  }
  ADD_FAILURE() << "the ranks did not meet within a minute";
}

}  // namespace heterog::comm
