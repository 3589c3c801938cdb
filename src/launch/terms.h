// Terms of a job: what its ranks are told to run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "cluster/cluster.h"

namespace heterog::launch {

// The same for all ranks of a job.
struct JobTerms {
  std::uint64_t hash = 0;  // of plan, graph, cluster, batch and all else that steps depend on
  struct Rank {
    std::string device;      // "a/gpu1"
    std::string type;        // "V100-PCIE-16GB"
    Bytes needed_bytes = 0;  // for tensors, as the plan predicts
  };
  std::vector<Rank> ranks;
  bool any_device = false;  // ranks may be other devices than the plan's
  std::string given = "plan, graph, cluster and options";  // what the hash is of, for messages
};
std::vector<std::string> device_names(const JobTerms& terms);

// The type of device that a rank has to run on: that of its device; a processor, whichever it is,
// for a host that serves parameters.
std::string rank_type(const cluster::Cluster& cluster, DeviceId rank);

}  // namespace heterog::launch
