// This process as one rank of a job: what all ranks must agree on before the first step, and the
// way in.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/program.h"
#include "runtime/rank_place.h"
#include "runtime/rank_transport.h"
#include "runtime/rendezvous.h"

namespace heterog::runtime {

struct TermsOptions {
  std::uint64_t seed = 0;
  bool any_device = false;          // ranks may be other devices than the plan's
  std::vector<std::string> others;  // whatever else steps depend on, in words
};

// The hash is of what every rank does in a step, instruction by instruction, so it also tells apart
// ranks whose files are alike but were compiled to other plans. `peak_bytes`: of each device, as
// predicted.
JobTerms terms_of(const Job& job, const IdVector<DeviceId, Bytes>& peak_bytes,
                  const TermsOptions& options);

struct Joined {
  DeviceId rank;
  int ranks_here = 1;            // that share this one's memory and processors, itself among them
  at::Device device = at::kCPU;  // that it runs on
  std::unique_ptr<RankTransport> transport;
};
// Chooses a device, meets the others, and connects to them. Errors as of meet() and TcpTransport.
Joined join(const Job& job, const JobTerms& terms, const RankPlace& place,
            std::chrono::milliseconds timeout);

// Of one operator: as wanted, or, for 0, an equal share of this host's processors.
int operator_threads(int wanted, int ranks_here);

}  // namespace heterog::runtime
