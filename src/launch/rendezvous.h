// Rendezvous of the ranks of a job: each says what it is, and all check that they fit together and
// to the plan before anything runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "comm/store.h"
#include "launch/rank_place.h"
#include "launch/terms.h"

namespace heterog::launch {

// Facts about a rank.
struct RankFacts {
  std::string type;        // of device types: "CPU"
  Bytes memory_bytes = 0;  // of the device
  std::string host;
  std::string shares;  // ranks of which this is equal share that memory; empty: it has its own
  std::string gpu;     // which one of all hosts; empty on a CPU
  std::string note;    // why it is not what the plan wants: "there is no GPU here"
};
// A rank on the CPU of this host: its memory is the host's, or the control group's if that is less.
RankFacts cpu_facts();

struct Meeting {
  comm::Store store;
  std::string address;            // of this host, for the connections between ranks
  int ranks_here = 1;             // that share this one's memory, itself among them
  std::vector<std::string> gpus;  // one a rank: RankFacts::gpu
};

// Returns once all ranks have come and fit. Ends with an Error of one line: of kInput on every rank
// if they do not fit to the plan, and on the one that is refused because rank 0 runs another job;
// of kVerification that names the missing if not all come within the time-out.
Meeting meet(const RankPlace& place, const JobTerms& terms, const RankFacts& facts,
             std::chrono::milliseconds timeout);

}  // namespace heterog::launch
