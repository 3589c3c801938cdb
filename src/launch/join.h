// The way of this process into a job, as one of its ranks.
#pragma once

#include <chrono>
#include <memory>

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
// Chooses a device, meets the others, and connects to them. `traffic`: the same on all ranks.
// Errors as of meet() and TcpTransport.
Joined join(const JobTerms& terms, const comm::Traffic& traffic, const RankPlace& place,
            std::chrono::milliseconds timeout);

// Threads of one operator: as wanted, or, for 0, an equal share of this host's processors.
int operator_threads(int wanted, int ranks_here);

}  // namespace heterog::launch
