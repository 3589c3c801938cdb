// Formulas of collectives over a device set, and how long a transfer takes.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "cost/all_reduce_algorithm.h"

namespace heterog::cost {

// 2(n−1)/n · bytes / bandwidth + 2(n−1) · latency (Patarasuk and Yuan 2007), n ≥ 2 devices.
double ring_seconds(int devices, Bytes bytes, double bytes_per_second, double latency_seconds);

// The duration of a collective, and the links that it holds.
struct CollectiveCost {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;
  Nanoseconds duration = 0;
  // Every link that it crosses, ascending, each with the time that it is held.
  std::vector<std::pair<LinkId, Nanoseconds>> links;
};

// The formula of one device set and algorithm, ready for any number of bytes.
struct AllReduceShape {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;
  double latency_seconds = 0;
  double duration_per_byte = 0;           // seconds
  double duration_per_byte_in_flows = 0;  // of more than cluster::kFlowBytes
  // Every link that it crosses, ascending, with the time held for each byte reduced.
  std::vector<std::pair<LinkId, double>> seconds_per_byte;

  double seconds(Bytes bytes) const {
    const double per_byte =
        bytes > cluster::kFlowBytes ? duration_per_byte_in_flows : duration_per_byte;
    return latency_seconds + per_byte * static_cast<double>(bytes);
  }
};

// The part of a cost that a compiler works out once for a device set. `devices` distinct, ≥ 2, in
// any order.
AllReduceShape all_reduce_shape(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                                AllReduceAlgorithm algorithm);
CollectiveCost collective_cost(const AllReduceShape& shape, Bytes bytes);

// A ring that gathers: every device sends an equal part of the bytes to all others, so each hop
// carries (n−1)/n of them in n−1 steps.
AllReduceShape all_gather_shape(const cluster::Cluster& cluster, std::span<const DeviceId> devices);

// All-reduce of `bytes` over `devices` (distinct, ≥ 2), by the algorithm that runs for so many of
// them and so many bytes, or the one given. The members of a ring or a tree are in the order of
// their ids, so that those of one machine stand side by side: a ring crosses each NIC once in each
// direction.
// A collective is launched once, and each of its steps takes the latency of its slowest hop.
// A link is held for the bytes that cross it over its bandwidth, which may be less than the whole
// duration: what is left of a fast link is free for others.
CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes);
CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes, AllReduceAlgorithm algorithm);

// The use of a transfer: pushes and pulls may have a transport of their own.
enum class TransferUse : std::uint8_t { kValue, kServer };

// A transfer of `bytes` over a route: how long it holds one of its links, and how long it takes in
// all (decision 7).
Nanoseconds link_hold(const cluster::Cluster& cluster, const cluster::Route& route, LinkId link,
                      Bytes bytes, TransferUse use = TransferUse::kValue);
Nanoseconds transfer_duration(const cluster::Cluster& cluster, const cluster::Route& route,
                              Bytes bytes, TransferUse use = TransferUse::kValue);

}  // namespace heterog::cost
