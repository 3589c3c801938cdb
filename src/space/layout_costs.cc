// Compute and aggregation are those of the estimates; what moves is looked at port by port.
#include "space/layout_costs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace heterog::space {

namespace {

// The part of the batch that each device has: [begin, end), both 0 for those that have none.
struct Intervals {
  IdVector<DeviceId, std::pair<double, double>> of;
  std::vector<MachineId> machines;  // that have any, ascending
};

Intervals intervals_of(const cluster::Cluster& cluster,
                       const std::vector<decide::Replica>& replicas) {
  Intervals intervals{.of = {cluster.device_count(), std::pair(0.0, 0.0)}, .machines = {}};
  double sum = 0, at = 0;
  for (const decide::Replica& replica : replicas) sum += replica.weight;
  for (const decide::Replica& replica : replicas) {
    const double end = at + replica.weight / sum;
    intervals.of[replica.device] = {at, end};
    intervals.machines.push_back(cluster.device(replica.device).machine);
    at = end;
  }
  std::ranges::sort(intervals.machines);
  const auto repeated = std::ranges::unique(intervals.machines);
  intervals.machines.erase(repeated.begin(), repeated.end());
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
      for (MachineId machine : id_range<MachineId>(cluster.machine_count())) {
        look_at(a, machine);
      }
    }
  }

  double operator()(const Intervals& from, const Intervals& to) const {
    double most = 0;
    std::vector<MachineId> both;
    std::ranges::set_union(from.machines, to.machines, std::back_inserter(both));
    for (MachineId machine : both) {
      double had = 0, has = 0, kept = 0;
      for (DeviceId a : cluster_.machine(machine).devices) {
        had += length(from.of[a]);
        has += length(to.of[a]);
        double mine = 0;
        for (DeviceId b : cluster_.machine(machine).devices) mine += overlap(from.of[b], to.of[a]);
        kept += mine;
        most = std::max(most, inside_[a] * (mine - overlap(from.of[a], to.of[a])));
      }
      most = std::max(most, outside_[machine] * (std::max(had, has) - kept));
    }
    return most;
  }

 private:
  // From the device to those of a machine; of another one to the first of each type.
  void look_at(DeviceId a, MachineId machine) {
    const bool own = cluster_.device(a).machine == machine;
    double& known = own ? inside_[a] : outside_[cluster_.device(a).machine];
    DeviceId before;
    for (DeviceId b : cluster_.machine(machine).devices) {
      const bool alike =
          !own && before.valid() && cluster_.device(before).type == cluster_.device(b).type;
      before = b;
      if (a != b && !alike) known = std::max(known, seconds_per_byte(cluster_, a, b));
    }
  }

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

// Rows that differ in how gradients are summed alone have the same parts of the batch.
std::vector<double> seconds_of_moves(const Summary& summary, std::span<const ActionId> layouts) {
  const cluster::Cluster& cluster = *summary.problem.cluster;
  std::vector<Intervals> intervals;    // distinct
  std::vector<std::size_t> of_layout;  // index into these
  std::map<std::vector<std::pair<std::uint32_t, double>>, std::size_t> known;
  for (ActionId action : layouts) {
    const auto& replicas = summary.actions.decision(action).replicas;
    std::vector<std::pair<std::uint32_t, double>> key;
    for (const decide::Replica& one : replicas) key.emplace_back(one.device.value(), one.weight);
    const auto [at, is_new] = known.try_emplace(std::move(key), intervals.size());
    if (is_new) intervals.push_back(intervals_of(cluster, replicas));
    of_layout.push_back(at->second);
  }
  const Moving moving(cluster);
  std::vector<double> between;
  for (const Intervals& from : intervals) {
    for (const Intervals& to : intervals) between.push_back(moving(from, to));
  }
  std::vector<double> seconds;
  for (std::size_t from : of_layout) {
    for (std::size_t to : of_layout) seconds.push_back(between[from * intervals.size() + to]);
  }
  return seconds;
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
  costs.moving = seconds_of_moves(summary, layouts);
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
