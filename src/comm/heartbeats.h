// Signs of life of the ranks of a job, by its store: for peers that are lost without a connection
// that would close.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "comm/store.h"

namespace heterog::comm {

// Used by one thread. Calls throw as those of the store do.
class Heartbeats {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kEvery{1000};
  static constexpr std::chrono::milliseconds kSilence{10'000};  // after so long, a rank is lost

  Heartbeats(Store own_connection, DeviceId own)
      : store_(own_connection.under("beats")), own_(own) {}

  // This rank lives, and has come so far: numbers that mean the same on all ranks.
  void beat(const std::vector<std::uint64_t>& progress);
  // The progress that a rank said last; empty if it has said nothing yet.
  std::vector<std::uint64_t> progress_of(DeviceId rank) const;
  // True if a rank that was asked after all the while has not beaten for kSilence. What was not
  // asked after for three beats is forgotten: asking begins anew.
  bool is_silent(DeviceId rank, Clock::time_point now);

 private:
  std::vector<std::uint64_t> read(DeviceId rank) const;

  struct Heard {
    std::uint64_t count = 0;
    std::optional<Clock::time_point> at;
    Clock::time_point asked;
  };
  Store store_;
  DeviceId own_;
  std::uint64_t count_ = 0;
  std::vector<Heard> heard_;  // by rank
};

}  // namespace heterog::comm
