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

// All-reduce of `bytes` over `devices` (distinct, ≥ 2). Ring: devices of one machine side by side,
// so that each NIC is crossed once in each direction. Hierarchical: reduce inside each machine to
// one device, ring among these, broadcast inside. Ties: ring. (HeteroG §3.4)
CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes);
CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes, AllReduceAlgorithm algorithm);

// A transfer of `bytes` over a route: the time each link is held, and the whole (decision 7).
Nanoseconds transfer_duration(const cluster::Cluster& cluster, const cluster::Route& route,
                              Bytes bytes);

}  // namespace heterog::cost
