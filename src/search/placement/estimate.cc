// Insertion into gaps, and arrival of values over links that are free or queued for.
#include "search/placement/estimate.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "cost/collective.h"
#include "search/placement/transfer_lines.h"

namespace heterog::search {

Nanoseconds BusyTimes::first_gap(Nanoseconds ready, Nanoseconds duration) const {
  auto next = std::ranges::upper_bound(busy_, ready, {}, &Interval::end);
  Nanoseconds at = ready;
  for (; next != busy_.end() && next->begin < at + duration; ++next) at = next->end;
  return at;
}

void BusyTimes::take(Interval interval) {
  if (interval.begin == interval.end) return;
  auto next = std::ranges::lower_bound(busy_, interval.begin, {}, &Interval::begin);
  EXPECT(next == busy_.end() || interval.end <= next->begin);
  const bool touches_next = next != busy_.end() && next->begin == interval.end;
  const bool touches_last = next != busy_.begin() && std::prev(next)->end == interval.begin;
  if (touches_last && touches_next) {
    std::prev(next)->end = next->end;
    busy_.erase(next);
  } else if (touches_last) {
    std::prev(next)->end = interval.end;
  } else if (touches_next) {
    next->begin = interval.begin;
  } else {
    busy_.insert(next, interval);
  }
}

Estimate::Estimate(const PlacementGraph& graph, LinkUse links, std::vector<Bytes> capacity)
    : graph_(graph),
      links_(links),
      left_(std::move(capacity)),
      busy_(graph.problem->cluster->device_count()),
      device_(graph.size()),
      interval_(graph.size()),
      device_of_set_(graph.set_bytes.size()),
      arrived_(graph.value_count),
      link_free_(graph.problem->cluster->link_count(), 0) {}

Bytes Estimate::bytes(NodeId node) const {
  const SetId set = graph_.set_of[node];
  return graph_.kept[node] + (device_of_set_[set].valid() ? 0 : graph_.set_bytes[set]);
}

DeviceId Estimate::emptiest() const {
  return DeviceId(static_cast<std::size_t>(std::ranges::max_element(left_) - left_.begin()));
}

// When all that the node reads is there. Transfers that are only asked about leave no trace.
Nanoseconds Estimate::ready(NodeId node, DeviceId device, bool commit) {
  const cluster::Cluster& cluster = *graph_.problem->cluster;
  std::vector<std::pair<LinkId, Nanoseconds>> before;
  Nanoseconds latest = 0;
  for (const Edge& edge : graph_.inputs[node]) {
    const Nanoseconds made = interval_[edge.node].end;
    if (device_[edge.node] == device) {
      latest = std::max(latest, made);
      continue;
    }
    auto& there = arrived_[edge.value];
    const auto known = std::ranges::find(there, device, [](const auto& one) { return one.first; });
    if (known != there.end()) {
      latest = std::max(latest, known->second);
      continue;
    }
    const cluster::Route& route = cluster.route(device_[edge.node], device);
    Nanoseconds begin = made;
    if (links_ == LinkUse::kQueued) {
      for (LinkId link : route.links) begin = std::max(begin, link_free_[link]);
      for (LinkId link : route.links) {
        if (!commit) before.emplace_back(link, link_free_[link]);
        link_free_[link] = begin + cost::link_hold(cluster, route, link, edge.bytes);
      }
    }
    const Nanoseconds arrives =
        begin + transfer_time(graph_, device_[edge.node], device, edge.bytes);
    if (commit) there.emplace_back(device, arrives);
    latest = std::max(latest, arrives);
  }
  for (auto old = before.rbegin(); old != before.rend(); ++old)
    link_free_[old->first] = old->second;
  return latest;
}

Interval Estimate::from(Nanoseconds ready, NodeId node, DeviceId device, bool behind) const {
  const Nanoseconds duration = graph_.duration(node, graph_.problem->cluster->device(device).type);
  const BusyTimes& busy = busy_[device.value()];
  const Nanoseconds begin = behind ? std::max(ready, busy.end()) : busy.first_gap(ready, duration);
  return {begin, begin + duration};
}

Interval Estimate::when(NodeId node, DeviceId device, bool behind) {
  return from(ready(node, device, false), node, device, behind);
}

void Estimate::put(NodeId node, DeviceId device, bool behind) {
  const Interval interval = from(ready(node, device, true), node, device, behind);
  left_[device.value()] -= bytes(node);
  DeviceId& of_set = device_of_set_[graph_.set_of[node]];
  if (!of_set.valid()) of_set = device;
  busy_[device.value()].take(interval);
  device_[node] = device;
  interval_[node] = interval;
}

Nanoseconds Estimate::finish() const {
  Nanoseconds latest = 0;
  for (const Interval& one : interval_) latest = std::max(latest, one.end);
  return latest;
}

std::vector<NodeId> Estimate::started() const {
  std::vector<NodeId> order;
  for (NodeId node : graph_.nodes()) order.push_back(node);
  std::ranges::stable_sort(order, {}, [&](NodeId node) { return interval_[node].begin; });
  return order;
}

std::vector<Bytes> capacities(const PlacementGraph& graph) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  std::vector<Bytes> bytes;
  for (DeviceId device : cluster.device_ids()) {
    bytes.push_back(cluster.device(device).memory_bytes - cluster.type_of(device).reserve_bytes -
                    graph.passing);
  }
  return bytes;
}

}  // namespace heterog::search
