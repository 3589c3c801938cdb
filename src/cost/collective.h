// Formulas of all-reduce: ring and hierarchical, and the better of the two for a device set.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cluster/cluster.h"

namespace heterog::cost {

enum class AllReduceAlgorithm : std::uint8_t { kRing, kHierarchical };

// 2(n−1)/n · bytes / bandwidth + 2(n−1) · latency (Patarasuk and Yuan 2007), n ≥ 2 devices.
double ring_seconds(int devices, Bytes bytes, double bytes_per_second, double latency_seconds);

// What a collective takes and holds.
struct CollectiveCost {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;
  Nanoseconds duration = 0;
  // Every link that it crosses, ascending, each with the time that it is held.
  std::vector<std::pair<LinkId, Nanoseconds>> links;
};

// The formulas of one device set, ready for any number of bytes: a sequence of phases, each of
// which lasts as long as the slowest of its parts (the machines that work side by side).
struct AllReduceShape {
  struct Part {
    double latency_seconds = 0;
    double seconds_per_byte = 0;
  };
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;
  std::vector<std::vector<Part>> phases;
  // Every link that it crosses, ascending, with the time held for each byte reduced.
  std::vector<std::pair<LinkId, double>> seconds_per_byte;

  double seconds(Bytes bytes) const;
};

// What a compiler asks once a device set. `devices` distinct, ≥ 2, in any order.
AllReduceShape all_reduce_shape(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                                AllReduceAlgorithm algorithm);
CollectiveCost collective_cost(const AllReduceShape& shape, Bytes bytes);

// A ring that gathers: every device sends an equal part of the bytes to all others, so each hop
// carries (n−1)/n of them in n−1 steps.
AllReduceShape all_gather_shape(const cluster::Cluster& cluster, std::span<const DeviceId> devices);

// All-reduce of `bytes` over `devices` (distinct, ≥ 2). Ring: devices of one machine side by side,
// so that each NIC is crossed once in each direction. Hierarchical: reduce inside each machine to
// one device, ring among these, broadcast inside. Ties: ring. (HeteroG §3.4)
// Each phase is launched once, and each of its steps takes the latency of the slowest hop.
// A link is held for the bytes that cross it over its bandwidth, which may be less than the whole
// duration: what is left of a fast link is free for others.
CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes);
CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes, AllReduceAlgorithm algorithm);

// A transfer of `bytes` over a route: the time each link is held, and the whole (decision 7).
Nanoseconds transfer_duration(const cluster::Cluster& cluster, const cluster::Route& route,
                              Bytes bytes);

}  // namespace heterog::cost
