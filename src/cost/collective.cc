// Rings, trees and exchanges over routes, and how long a transfer takes.
#include "cost/collective.h"

#include <algorithm>
#include <map>

namespace heterog::cost {
namespace {

// Consecutive hops (source, destination) that all carry the same bytes at the same time.
using Hops = std::vector<std::pair<DeviceId, DeviceId>>;

// Sums by link. Flat: a ring over a thousand devices touches thousands of links.
class LinkSums {
 public:
  explicit LinkSums(std::size_t links) : sum_(links, 0.0), touched_(links, 0) {}
  void add(LinkId link, double value) {
    if (!touched_[link]) {
      touched_[link] = 1;
      links_.push_back(link);
    }
    sum_[link] += value;
  }
  // In the order in which they were first added to.
  const std::vector<LinkId>& links() const { return links_; }
  double of(LinkId link) const { return sum_[link]; }
  void clear() {
    for (LinkId link : links_) {
      sum_[link] = 0;
      touched_[link] = 0;
    }
    links_.clear();
  }
  // Ascending by link.
  std::vector<std::pair<LinkId, double>> sorted() const {
    std::vector<std::pair<LinkId, double>> all;
    all.reserve(links_.size());
    for (LinkId link : links_) all.emplace_back(link, sum_[link]);
    std::ranges::sort(all, {}, &std::pair<LinkId, double>::first);
    return all;
  }

 private:
  IdVector<LinkId, double> sum_;
  IdVector<LinkId, std::uint8_t> touched_;
  std::vector<LinkId> links_;
};

// What a collective puts on the links, and what the hops of one step do, which are gone through
// one after the other.
struct Held {
  LinkSums all;
  LinkSums of_step;
  explicit Held(std::size_t links) : all(links), of_step(links) {}
};

// Rate and latency of a set of simultaneous hops: a link that k hops share gives each 1/k.
struct HopCost {
  double seconds_per_byte = 0;           // of the slowest link or capped flow, for one byte a hop
  double seconds_per_byte_in_flows = 0;  // the same over all flows
  double launch_seconds = 0;             // of the slowest hop, once
  double latency_seconds = 0;            // of the slowest hop, each step
};

// `rings`: how many devices of each machine send over its NIC side by side for one hop.
HopCost hop_cost(const cluster::Cluster& cluster, const Hops& hops, double bytes_per_hop,
                 Held& held, double rings = 1) {
  LinkSums& own = held.of_step;  // seconds a byte of hop traffic
  own.clear();
  HopCost cost;
  const auto at_least = [&](double of_one_flow, double of_all) {
    cost.seconds_per_byte = std::max(cost.seconds_per_byte, of_one_flow);
    cost.seconds_per_byte_in_flows = std::max(cost.seconds_per_byte_in_flows, of_all);
  };
  for (const auto& [from, to] : hops) {
    const cluster::Route& route = cluster.route(from, to);
    for (LinkId link : route.links) own.add(link, 1 / cluster.link(link).bytes_per_second);
    cost.launch_seconds = std::max(cost.launch_seconds, to_seconds(route.launch));
    cost.latency_seconds = std::max(cost.latency_seconds, to_seconds(route.latency - route.launch));
    if (const double cap = route.cap_bytes_per_second; cap > 0) {
      at_least(1 / cap, 1 / (cap * static_cast<double>(route.flows)));
    }
    if (const double share = route.device_bytes_per_second; share > 0) {
      at_least(1 / (rings * share), 1 / (rings * share));
    }
  }
  for (LinkId link : own.links()) {
    const double seconds = own.of(link);
    at_least(seconds, seconds);
    held.all.add(link, seconds * bytes_per_hop);
  }
  return cost;
}

// Adds a part of the collective, which begins once what was added before is done.
void add_steps(AllReduceShape& shape, const HopCost& cost, double steps, double bytes_per_hop) {
  shape.latency_seconds += steps * cost.latency_seconds;
  shape.duration_per_byte += bytes_per_hop * cost.seconds_per_byte;
  shape.duration_per_byte_in_flows += bytes_per_hop * cost.seconds_per_byte_in_flows;
}

// The fewest devices of a machine that has any: so many rings run side by side, each of which
// leaves the machines by another device.
double rings_side_by_side(const cluster::Cluster& cluster, std::span<const DeviceId> devices) {
  std::map<MachineId, double> members;
  for (DeviceId device : devices) ++members[cluster.device(device).machine];
  double fewest = static_cast<double>(devices.size());
  for (const auto& [machine, count] : members) fewest = std::min(fewest, count);
  return fewest;
}

// Around the devices in this order: in each pass a hop carries (n−1)/n of the bytes in n−1 steps.
// Two passes reduce, one gathers.
void add_ring(const cluster::Cluster& cluster, std::span<const DeviceId> devices, int passes,
              AllReduceShape& shape, Held& held) {
  const std::size_t n = devices.size();
  Hops hops;
  for (std::size_t i = 0; i < n; ++i) hops.emplace_back(devices[i], devices[(i + 1) % n]);
  const double steps = static_cast<double>(passes) * static_cast<double>(n - 1);
  const double share = steps / static_cast<double>(n);
  const HopCost cost = hop_cost(cluster, hops, share, held, rings_side_by_side(cluster, devices));
  shape.latency_seconds += cost.launch_seconds;
  add_steps(shape, cost, steps, share);
}

// Up a binomial tree, and down again: all hops of one reach side by side.
void add_tree(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
              AllReduceShape& shape, Held& held) {
  double launch = 0;
  for (std::size_t reach = 1; reach < devices.size(); reach *= 2) {
    Hops up, down;
    for (std::size_t i = reach; i < devices.size(); i += reach) {
      if (tree_reach(i) != reach) continue;
      up.emplace_back(devices[i], devices[i - reach]);
      down.emplace_back(devices[i - reach], devices[i]);
    }
    for (const Hops& hops : {up, down}) {
      const HopCost cost = hop_cost(cluster, hops, 1, held);
      launch = std::max(launch, cost.launch_seconds);
      add_steps(shape, cost, 1, 1);
    }
  }
  shape.latency_seconds += launch;
}

// Between every two of them, both ways.
void add_exchange(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                  AllReduceShape& shape, Held& held) {
  Hops hops;
  for (DeviceId from : devices) {
    for (DeviceId to : devices) {
      if (from != to) hops.emplace_back(from, to);
    }
  }
  const HopCost cost = hop_cost(cluster, hops, 1, held);
  shape.latency_seconds += cost.launch_seconds;
  add_steps(shape, cost, 1, 1);
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

AllReduceShape all_reduce_shape(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                                AllReduceAlgorithm algorithm) {
  const std::vector<DeviceId> sorted = in_ring_order(devices);
  AllReduceShape shape;
  shape.algorithm = algorithm;
  Held held(cluster.link_count());
  switch (algorithm) {
    case AllReduceAlgorithm::kRing:
      add_ring(cluster, sorted, 2, shape, held);
      break;
    case AllReduceAlgorithm::kTree:
      add_tree(cluster, sorted, shape, held);
      break;
    case AllReduceAlgorithm::kExchange:
      add_exchange(cluster, sorted, shape, held);
      break;
  }
  shape.seconds_per_byte = held.all.sorted();
  return shape;
}

AllReduceShape all_gather_shape(const cluster::Cluster& cluster,
                                std::span<const DeviceId> devices) {
  AllReduceShape shape;
  Held held(cluster.link_count());
  add_ring(cluster, in_ring_order(devices), 1, shape, held);
  shape.seconds_per_byte = held.all.sorted();
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
  return all_reduce_cost(cluster, devices, bytes, all_reduce_algorithm(devices.size(), bytes));
}

Nanoseconds link_hold(const cluster::Cluster& cluster, const cluster::Route& route, LinkId link,
                      Bytes bytes, TransferUse use) {
  const double rate = cluster.link(link).bytes_per_second;
  if (use == TransferUse::kValue || route.server_bytes_per_second == 0) {
    return transfer_nanoseconds(bytes, rate);
  }
  // The software of a server takes one message at a time.
  return route.server_latency +
         transfer_nanoseconds(bytes, std::min(rate, route.server_bytes_per_second));
}

Nanoseconds transfer_duration(const cluster::Cluster& cluster, const cluster::Route& route,
                              Bytes bytes, TransferUse use) {
  const bool by_software = use == TransferUse::kServer && route.server_bytes_per_second > 0;
  const Nanoseconds latency = by_software ? route.server_latency : route.latency;
  double slowest = by_software ? route.server_bytes_per_second : 0;  // 0: none yet
  const auto consider = [&](double rate) {
    if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
  };
  for (LinkId link : route.links) consider(cluster.link(link).bytes_per_second);
  consider(cluster::flow_cap(route, bytes));
  consider(route.device_bytes_per_second);
  return latency + transfer_nanoseconds(bytes, slowest);
}

}  // namespace heterog::cost
