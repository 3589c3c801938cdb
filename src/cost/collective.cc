// Formulas of all-reduce over routes, and how long a transfer takes.
#include "cost/collective.h"

#include <algorithm>
#include <map>

namespace heterog::cost {
namespace {

// Consecutive hops (source, destination) that all carry the same bytes at the same time.
using Hops = std::vector<std::pair<DeviceId, DeviceId>>;

// Rate and latency of a set of simultaneous hops: a link that k hops share gives each 1/k.
struct HopCost {
  double seconds_per_byte = 0;  // of the slowest link or capped flow, for one byte a hop
  double launch_seconds = 0;    // of the slowest hop, once
  double latency_seconds = 0;   // of the slowest hop, each step
  double steps_seconds(double steps) const { return launch_seconds + steps * latency_seconds; }
};

HopCost hop_cost(const cluster::Cluster& cluster, const Hops& hops, double bytes_per_hop,
                 std::map<LinkId, double>& held) {
  std::map<LinkId, double> own;  // seconds a byte of hop traffic
  HopCost cost;
  for (const auto& [from, to] : hops) {
    const cluster::Route& route = cluster.route(from, to);
    for (LinkId link : route.links) own[link] += 1 / cluster.link(link).bytes_per_second;
    cost.launch_seconds = std::max(cost.launch_seconds, to_seconds(route.launch));
    cost.latency_seconds = std::max(cost.latency_seconds, to_seconds(route.latency - route.launch));
    if (route.cap_bytes_per_second > 0) {
      cost.seconds_per_byte = std::max(cost.seconds_per_byte, 1 / route.cap_bytes_per_second);
    }
  }
  for (const auto& [link, seconds] : own) {
    cost.seconds_per_byte = std::max(cost.seconds_per_byte, seconds);
    held[link] += seconds * bytes_per_hop;
  }
  return cost;
}

// Ring over devices in this order: in each pass a hop carries (n−1)/n of the bytes in n−1 steps.
// Two passes reduce, one gathers.
AllReduceShape::Part ring_part(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               int passes, std::map<LinkId, double>& held) {
  const int n = static_cast<int>(devices.size());
  Hops hops;
  for (int i = 0; i < n; ++i) hops.emplace_back(devices[i], devices[(i + 1) % n]);
  const double steps = static_cast<double>(passes) * (n - 1);
  const double share = steps / n;
  const HopCost cost = hop_cost(cluster, hops, share, held);
  return {cost.steps_seconds(steps), share * cost.seconds_per_byte};
}

// A pipelined chain between the first device and the rest of its machine, in either direction:
// every hop carries all bytes, and the first of them pays the latency of each hop.
AllReduceShape::Part chain_part(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                                bool towards_first, std::map<LinkId, double>& held) {
  Hops hops;
  for (std::size_t i = 1; i < devices.size(); ++i) {
    hops.emplace_back(devices[i - 1], devices[i]);
    if (towards_first) std::swap(hops.back().first, hops.back().second);
  }
  const HopCost cost = hop_cost(cluster, hops, 1, held);
  return {cost.steps_seconds(static_cast<double>(hops.size())), cost.seconds_per_byte};
}

// Devices are numbered machine by machine, so ascending order puts those of one side by side.
std::vector<DeviceId> in_ring_order(std::span<const DeviceId> devices) {
  std::vector<DeviceId> sorted(devices.begin(), devices.end());
  std::sort(sorted.begin(), sorted.end());
  EXPECT(sorted.size() >= 2);
  EXPECT(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
  return sorted;
}

}  // namespace

double ring_seconds(int devices, Bytes bytes, double bytes_per_second, double latency_seconds) {
  EXPECT(devices >= 2);
  const double n = devices;
  return 2 * (n - 1) / n * static_cast<double>(bytes) / bytes_per_second +
         2 * (n - 1) * latency_seconds;
}

double AllReduceShape::seconds(Bytes bytes) const {
  double total = 0;
  for (const std::vector<Part>& parts : phases) {
    double slowest = 0;
    for (const Part& part : parts) {
      slowest = std::max(slowest,
                         part.latency_seconds + part.seconds_per_byte * static_cast<double>(bytes));
    }
    total += slowest;
  }
  return total;
}

AllReduceShape all_reduce_shape(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                                AllReduceAlgorithm algorithm) {
  const std::vector<DeviceId> sorted = in_ring_order(devices);
  AllReduceShape shape;
  shape.algorithm = algorithm;
  std::map<LinkId, double> held;
  if (algorithm == AllReduceAlgorithm::kRing) {
    shape.phases = {{ring_part(cluster, sorted, 2, held)}};
  } else {
    std::vector<AllReduceShape::Part> reduce, broadcast;
    std::vector<DeviceId> leaders;
    for (std::size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
      while (end < sorted.size() && cluster.same_machine(sorted[begin], sorted[end])) ++end;
      const std::span<const DeviceId> inside(sorted.data() + begin, end - begin);
      leaders.push_back(inside.front());
      if (inside.size() == 1) continue;
      reduce.push_back(chain_part(cluster, inside, true, held));
      broadcast.push_back(chain_part(cluster, inside, false, held));
    }
    if (!reduce.empty()) shape.phases.push_back(reduce);
    if (leaders.size() > 1) shape.phases.push_back({ring_part(cluster, leaders, 2, held)});
    if (!broadcast.empty()) shape.phases.push_back(broadcast);
  }
  shape.seconds_per_byte.assign(held.begin(), held.end());
  return shape;
}

AllReduceShape all_gather_shape(const cluster::Cluster& cluster,
                                std::span<const DeviceId> devices) {
  AllReduceShape shape;
  std::map<LinkId, double> held;
  shape.phases = {{ring_part(cluster, in_ring_order(devices), 1, held)}};
  shape.seconds_per_byte.assign(held.begin(), held.end());
  return shape;
}

CollectiveCost collective_cost(const AllReduceShape& shape, Bytes bytes) {
  CollectiveCost cost;
  cost.algorithm = shape.algorithm;
  cost.duration = to_nanoseconds(shape.seconds(bytes));
  cost.links.reserve(shape.seconds_per_byte.size());
  for (const auto& [link, seconds] : shape.seconds_per_byte) {
    cost.links.emplace_back(
        link, std::min(cost.duration, to_nanoseconds(seconds * static_cast<double>(bytes))));
  }
  return cost;
}

CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes, AllReduceAlgorithm algorithm) {
  return collective_cost(all_reduce_shape(cluster, devices, algorithm), bytes);
}

CollectiveCost all_reduce_cost(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                               Bytes bytes) {
  CollectiveCost ring = all_reduce_cost(cluster, devices, bytes, AllReduceAlgorithm::kRing);
  CollectiveCost hierarchical =
      all_reduce_cost(cluster, devices, bytes, AllReduceAlgorithm::kHierarchical);
  return hierarchical.duration < ring.duration ? hierarchical : ring;
}

Nanoseconds transfer_duration(const cluster::Cluster& cluster, const cluster::Route& route,
                              Bytes bytes) {
  Nanoseconds slowest = 0;
  for (LinkId link : route.links) {
    slowest = std::max(slowest, transfer_nanoseconds(bytes, cluster.link(link).bytes_per_second));
  }
  if (route.cap_bytes_per_second > 0) {
    slowest = std::max(slowest, transfer_nanoseconds(bytes, route.cap_bytes_per_second));
  }
  return slowest + route.latency;
}

}  // namespace heterog::cost
