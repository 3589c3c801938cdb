// Priorities, then devices, node by node.
#include "search/placement/list_placement.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "search/placement/node_orders.h"

namespace heterog::search {
namespace {

// From the node with the longest path behind it along the longest of each step.
std::vector<NodeId> critical_path(const PlacementGraph& graph,
                                  const IdVector<NodeId, Nanoseconds>& rank) {
  std::vector<NodeId> path;
  NodeId at;
  for (NodeId node : graph.nodes()) {
    if (graph.inputs[node].empty() && (!at.valid() || rank[node] > rank[at])) at = node;
  }
  while (at.valid()) {
    path.push_back(at);
    NodeId next;
    for (const Edge& edge : graph.outputs[at]) {
      if (!next.valid() || rank[edge.node] > rank[next]) next = edge.node;
    }
    at = next;
  }
  return path;
}

// The device of each node of the critical path (FastT §5.1); invalid for all others.
Placement critical_devices(const PlacementGraph& graph, const std::vector<NodeId>& path,
                           const std::vector<Bytes>& capacity) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  Placement chosen(graph.size());
  std::vector<std::uint8_t> used(cluster.device_count(), 0);
  std::size_t begin = 0;
  while (begin < path.size()) {
    DeviceId best;
    std::size_t best_end = begin;
    double least = std::numeric_limits<double>::infinity();
    for (DeviceId device : cluster.device_ids()) {
      if (used[device.value()]) continue;
      Bytes left = capacity[device.value()];
      Nanoseconds time = 0;
      std::vector<SetId> taken;
      std::size_t end = begin;
      for (; end < path.size(); ++end) {
        const SetId set = graph.set_of[path[end]];
        left -= graph.kept[path[end]];
        if (std::ranges::find(taken, set) == taken.end()) {
          taken.push_back(set);
          left -= graph.set_bytes[set];
        }
        if (left < 0) break;
        time += graph.duration(path[end], cluster.device(device).type);
      }
      if (end == begin) continue;
      const double mean = static_cast<double>(time) / static_cast<double>(end - begin);
      if (mean >= least) continue;
      least = mean;
      best = device;
      best_end = end;
    }
    if (!best.valid()) break;  // the rest of the path is placed as any other node
    used[best.value()] = 1;
    for (; begin < best_end; ++begin) chosen[path[begin]] = best;
  }
  return chosen;
}

}  // namespace

Estimate dpos(const PlacementGraph& graph, std::vector<Bytes> capacity,
              const DposOptions& options) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  const auto rank = bottom_levels(graph, weights(graph, Of::kMost));
  Placement critical(graph.size());
  if (options.critical_device) {
    critical = critical_devices(graph, critical_path(graph, rank), capacity);
  }
  std::vector<NodeId> order;
  for (NodeId node : graph.nodes()) order.push_back(node);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](NodeId node) { return rank[node]; });
  Estimate estimate(graph, options.links, std::move(capacity));
  for (NodeId node : order) {
    DeviceId chosen = estimate.held_at(node);
    if (!chosen.valid() && critical[node].valid() && estimate.fits(node, critical[node])) {
      chosen = critical[node];
    }
    if (!chosen.valid()) {
      Nanoseconds earliest = std::numeric_limits<Nanoseconds>::max();
      for (DeviceId device : cluster.device_ids()) {
        if (!estimate.fits(node, device)) continue;
        const Nanoseconds ends = estimate.when(node, device).end;
        if (ends < earliest) {
          earliest = ends;
          chosen = device;
        }
      }
    }
    estimate.put(node, chosen.valid() ? chosen : estimate.emptiest());
  }
  return estimate;
}

Estimate earliest_start_first(const PlacementGraph& graph, std::vector<Bytes> capacity,
                              LinkUse links) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  const auto rank = bottom_levels(graph, weights(graph, Of::kMean));
  Estimate estimate(graph, links, std::move(capacity));
  IdVector<NodeId, std::size_t> missing(graph.size());
  // Starts are looked up again when they come up: they only move backwards while devices fill.
  using Entry = std::tuple<Nanoseconds, Nanoseconds, NodeId, DeviceId>;  // start, −rank
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;
  const auto enter = [&](NodeId node) {
    const DeviceId held = estimate.held_at(node);
    for (DeviceId device : cluster.device_ids()) {
      if (held.valid() && held != device) continue;
      waiting.emplace(estimate.when(node, device, true).begin, -rank[node], node, device);
    }
  };
  for (NodeId node : graph.nodes()) {
    missing[node] = graph.inputs[node].size();
    if (missing[node] == 0) enter(node);
  }
  std::size_t put = 0;
  IdVector<NodeId, std::uint8_t> refused(graph.size(), 0);  // by so many devices
  const auto put_at = [&](NodeId node, DeviceId device) {
    estimate.put(node, device, true);
    ++put;
    for (const Edge& edge : graph.outputs[node]) {
      if (--missing[edge.node] == 0) enter(edge.node);
    }
  };
  while (put < graph.size()) {
    const auto [start, order, node, device] = waiting.top();
    waiting.pop();
    if (estimate.placement()[node].valid()) continue;
    const DeviceId held = estimate.held_at(node);
    if (held.valid() && held != device) {
      waiting.emplace(estimate.when(node, held, true).begin, order, node, held);
      continue;
    }
    if (!held.valid() && !estimate.fits(node, device)) {
      if (++refused[node] == cluster.device_count()) put_at(node, estimate.emptiest());
      continue;
    }
    const Nanoseconds now = estimate.when(node, device, true).begin;
    if (now > start) {
      waiting.emplace(now, order, node, device);
      continue;
    }
    put_at(node, device);
  }
  return estimate;
}

Estimate filled(const PlacementGraph& graph, std::vector<Bytes> capacity,
                const std::vector<NodeId>& order) {
  Estimate estimate(graph, LinkUse::kFree, std::move(capacity));
  std::size_t device = 0;
  const std::size_t devices = graph.problem->cluster->device_count();
  for (NodeId node : order) {
    const DeviceId held = estimate.held_at(node);
    while (!held.valid() && device < devices && !estimate.fits(node, DeviceId(device))) ++device;
    estimate.put(node, held.valid()       ? held
                       : device < devices ? DeviceId(device)
                                          : estimate.emptiest());
  }
  return estimate;
}

}  // namespace heterog::search
