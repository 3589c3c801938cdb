// Device of a rank, among those of its host.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "launch/gpu_parts.h"
#include "launch/gpus.h"
#include "launch/rank_place.h"
#include "launch/rendezvous.h"

namespace heterog::launch {

struct RankDevice {
  c10::Device device = c10::Device(c10::kCPU);
  RankFacts facts;
};

// The types of a cluster's devices, one a rank.
std::vector<std::string> device_types(const cluster::Cluster& cluster);

// The device of a rank that is a process of its own. `types`: of the plan's devices, one a rank. A
// rank whose device is a processor runs on the CPU; of the others of a host, the first takes the
// first GPU and so on, and round again if there are fewer. Where there are none it is a CPU, which
// says why: the rendezvous refuses what is not as planned. The ranks of a host have numbers that
// follow one another, or all are GPUs.
RankDevice rank_device(const std::vector<std::string>& types, const RankPlace& place,
                       const std::vector<Gpu>& gpus);

// The same among the GPUs that there are, with the memory that is free.
RankDevice rank_device(const JobTerms& terms, const RankPlace& place);

// The device of a rank that is a thread.
struct ThreadDevice {
  c10::Device device = c10::Device(c10::kCPU);
  int multiprocessors = 0;   // of a part of a GPU; 0: all
  PartStreams streams = {};  // of that part; empty: PyTorch's own, and on CPUs
};
// The devices of ranks that are threads of this process, by the same rule; parts that follow one
// another are of one GPU while its multiprocessors last. Without GPUs, all are CPUs. The first is
// without `streams`.
std::vector<ThreadDevice> thread_devices(const std::vector<std::string>& types,
                                         const std::vector<Gpu>& gpus);
std::vector<ThreadDevice> thread_devices(const cluster::Cluster& cluster);

// Threads of one operator of a rank: as wanted, or, for 0, as many as a part of a GPU has
// multiprocessors, where a CPU is to stand for it, or an equal share of this host's processors.
int operator_threads(int wanted, int ranks_here, const std::string& type = "");

}  // namespace heterog::launch
