// The way of this process into a job, as one of its ranks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "comm/rank_transport.h"
#include "launch/rank_place.h"
#include "launch/terms.h"

namespace heterog::launch {

struct Joined {
  DeviceId rank;
  int ranks_here = 1;            // that share this one's memory and processors, itself among them
  at::Device device = at::kCPU;  // that it runs on
  std::unique_ptr<comm::RankTransport> transport;
};
struct JoinOptions {
  std::chrono::milliseconds timeout{300'000};  // to meet
  // How long a rank may keep others waiting before it counts as lost; none: as long as that.
  std::optional<std::chrono::milliseconds> silence;
  // One of comm::transport_names(), the same on all ranks.
  std::string transport = comm::transport_names().front();
};
// Chooses a device, meets the others, and connects to them. `traffic`: the same on all ranks.
// Errors as of meet() and of transports.
Joined join(const JobTerms& terms, const comm::Traffic& traffic, const RankPlace& place,
            const JoinOptions& options);

}  // namespace heterog::launch
