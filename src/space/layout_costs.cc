// Compute and aggregation are those of the estimates; what moves is looked at port by port.
#include "space/layout_costs.h"

#include <algorithm>
#include <set>
#include <utility>

namespace heterog::space {

namespace {

// The part of the batch that each device has: [begin, end), both 0 for those that have none.
using Intervals = IdVector<DeviceId, std::pair<double, double>>;

Intervals intervals_of(const cluster::Cluster& cluster,
                       const std::vector<decide::Replica>& replicas) {
  Intervals intervals(cluster.device_count(), {0, 0});
  double sum = 0, at = 0;
  for (const decide::Replica& replica : replicas) sum += replica.weight;
  for (const decide::Replica& replica : replicas) {
    const double end = at + replica.weight / sum;
    intervals[replica.device] = {at, end};
    at = end;
  }
  return intervals;
}

double length(const std::pair<double, double>& a) { return a.second - a.first; }
double overlap(const std::pair<double, double>& a, const std::pair<double, double>& b) {
  return std::max(0.0, std::min(a.second, b.second) - std::max(a.first, b.first));
}

// Seconds to move a byte of the whole batch from one layout to another: the busiest device's within
// its machine, or the busiest machine's to and from others.
class Moving {
 public:
  explicit Moving(const cluster::Cluster& cluster)
      : cluster_(cluster),
        inside_(cluster.device_count(), 0),
        outside_(cluster.machine_count(), 0) {
    for (DeviceId a : cluster.device_ids()) {
      for (DeviceId b : cluster.device_ids()) {
        if (a == b) continue;
        const double slope = seconds_per_byte(cluster, a, b);
        double& known =
            cluster.same_machine(a, b) ? inside_[a] : outside_[cluster.device(a).machine];
        known = std::max(known, slope);
      }
    }
  }

  double operator()(const Intervals& from, const Intervals& to) const {
    double most = 0;
    for (MachineId machine : id_range<MachineId>(cluster_.machine_count())) {
      double had = 0, has = 0, kept = 0;
      for (DeviceId a : cluster_.machine(machine).devices) {
        had += length(from[a]);
        has += length(to[a]);
        double mine = 0;
        for (DeviceId b : cluster_.machine(machine).devices) mine += overlap(from[b], to[a]);
        kept += mine;
        most = std::max(most, inside_[a] * (mine - overlap(from[a], to[a])));
      }
      most = std::max(most, outside_[machine] * (std::max(had, has) - kept));
    }
    return most;
  }

 private:
  const cluster::Cluster& cluster_;
  IdVector<DeviceId, double> inside_;
  IdVector<MachineId, double> outside_;
};

// Bytes that go from groups before a cut to groups after it, or back; by the group after the cut.
std::vector<double> crossing_bytes(const Summary& summary) {
  const graph::Grouping& grouping = summary.problem.grouping;
  std::vector<double> crossing(grouping.count() + 1, 0);
  for (const OpEdge& edge : summary.ops.edges) {
    const GroupId a = grouping.group_of[summary.ops.nodes[edge.source]];
    const GroupId b = grouping.group_of[summary.ops.nodes[edge.target]];
    if (a == b) continue;
    const auto [first, last] = std::minmax(a, b);
    crossing[first.value() + 1] += static_cast<double>(edge.bytes);
    crossing[last.value() + 1] -= static_cast<double>(edge.bytes);
  }
  for (std::size_t i = 1; i < crossing.size(); ++i) crossing[i] += crossing[i - 1];
  crossing.pop_back();
  return crossing;
}

}  // namespace

LayoutCosts layout_costs(const Summary& summary, std::span<const ActionId> layouts) {
  const cluster::Cluster& cluster = *summary.problem.cluster;
  LayoutCosts costs{.groups = summary.groups.size(),
                    .layouts = layouts.size(),
                    .compute = {},
                    .sync = {},
                    .crossing = crossing_bytes(summary),
                    .moving = {}};
  for (GroupId group : id_range<GroupId>(costs.groups)) {
    for (ActionId action : layouts) {
      const ActionEstimate& estimate = summary.estimates.at(group, action);
      costs.compute.push_back(estimate.compute_seconds);
      costs.sync.push_back(estimate.sync_seconds);
    }
  }
  std::vector<Intervals> intervals;
  for (ActionId action : layouts) {
    intervals.push_back(intervals_of(cluster, summary.actions.decision(action).replicas));
  }
  const Moving moving(cluster);
  for (const Intervals& from : intervals) {
    for (const Intervals& to : intervals) costs.moving.push_back(moving(from, to));
  }
  return costs;
}

Chain cost_chain(const LayoutCosts& costs, double unhidden) {
  Chain chain{.groups = costs.groups,
              .rows = costs.layouts,
              .own = {},
              .weight = costs.crossing,
              .change = std::vector<double>(costs.groups, 0),
              .moving = costs.moving};
  for (std::size_t i = 0; i < costs.compute.size(); ++i) {
    chain.own.push_back(-(costs.compute[i] + unhidden * costs.sync[i]));
  }
  return chain;
}

std::vector<ActionId> unlike_rows(const ActionSpace& actions, const cluster::Cluster& cluster) {
  std::vector<ActionId> chosen;
  std::set<std::pair<MachineId, DeviceTypeId>> alone;
  for (ActionId action : actions.ids()) {
    if (actions[action].placement == Placement::kSingle) {
      const cluster::Device& device = cluster.device(actions[action].device);
      if (!alone.emplace(device.machine, device.type).second) continue;
    }
    chosen.push_back(action);
  }
  return chosen;
}

}  // namespace heterog::space
