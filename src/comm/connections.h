// TCP connections between all ranks of a job.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cluster/cluster.h"
#include "comm/store.h"

namespace heterog::comm {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor();

  bool valid() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// The use of a connection: between two ranks there is one of each.
enum class Channel : std::uint8_t { kMessages, kCollectives };
inline constexpr std::size_t kChannelCount = 2;

// To each other rank, by use: one for each flow. None to the own one. They do not block.
using Connections = IdVector<DeviceId, std::array<std::vector<Descriptor>, kChannelCount>>;

struct ConnectOptions {
  std::vector<std::string> device_names;  // one a rank, for messages
  std::string address = "127.0.0.1";      // of this host: the one on which peers are accepted
  std::chrono::milliseconds timeout{300'000};
  // To each rank, a connection of each use for each flow; empty: one of each. What two ranks say of
  // each other is the same.
  IdVector<DeviceId, std::int64_t> flows = {};

  std::size_t flows_to(DeviceId rank) const {
    return flows.empty() ? 1 : static_cast<std::size_t>(flows[rank]);
  }
};

// "rank 1 (a/cpu1)"; "rank 1" where its name is empty.
std::string rank_text(DeviceId rank, const std::vector<std::string>& device_names);
// For messages too.
inline double seconds_of(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}

// Every rank calls it at the same time. Connections are accepted from ranks of this job alone,
// which know a number that is drawn for it. Throws an Error (kVerification) that names the ranks
// that are not connected within the time-out.
Connections connect_ranks(const Store& store, DeviceId own, const ConnectOptions& options);

}  // namespace heterog::comm
