// Viterbi over the groups. OptCNN (Jia et al. 2018) finds layers' layouts in this way; here layouts
// are sets of unequal devices, and what is hidden of aggregation is a parameter.
#include "search/starts/estimated_layouts.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "space/summary.h"

namespace heterog::search {

namespace {

using space::ActionId;

using decide::SyncMethod;

constexpr double kUnhidden[] = {0.05, 0.2, 0.5, 1.0};
constexpr SyncMethod kSyncs[] = {SyncMethod::kAllReduce, SyncMethod::kParameterServer};

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
        const double slope = space::seconds_per_byte(cluster, a, b);
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
IdVector<GroupId, double> crossing_bytes(const space::Summary& summary) {
  const graph::Grouping& grouping = summary.problem.grouping;
  IdVector<GroupId, double> crossing(grouping.count() + 1, 0);
  for (const space::OpEdge& edge : summary.ops.edges) {
    const GroupId a = grouping.group_of[summary.ops.nodes[edge.source]];
    const GroupId b = grouping.group_of[summary.ops.nodes[edge.target]];
    if (a == b) continue;
    const auto [first, last] = std::minmax(a, b);
    crossing[GroupId(first.value() + 1)] += static_cast<double>(edge.bytes);
    crossing[GroupId(last.value() + 1)] -= static_cast<double>(edge.bytes);
  }
  for (std::size_t i = 1; i < crossing.size(); ++i) {
    crossing[GroupId(i)] += crossing[GroupId(i - 1)];
  }
  return crossing;
}

std::vector<ActionId> worth_trying(const space::ActionSpace& actions,
                                   const cluster::Cluster& cluster, SyncMethod sync) {
  std::vector<ActionId> chosen;
  std::set<std::pair<MachineId, DeviceTypeId>> alone;
  for (ActionId action : actions.ids()) {
    if (actions[action].placement == space::Placement::kSingle) {
      const cluster::Device& device = cluster.device(actions[action].device);
      if (!alone.emplace(device.machine, device.type).second) continue;
    } else if (actions[action].sync != sync) {
      continue;
    }
    chosen.push_back(action);
  }
  return chosen;
}

// A single device aggregates nothing: all-reduce there, as in the table.
decide::Strategy with_sync(decide::Strategy strategy, SyncMethod sync) {
  for (decide::UnitDecision& unit : strategy.units) {
    unit.sync = unit.replicas.size() > 1 ? sync : SyncMethod::kAllReduce;
  }
  return strategy;
}

void add_distinct(decide::Strategy strategy, std::vector<decide::Strategy>& found) {
  if (std::ranges::find(found, strategy) == found.end()) found.push_back(std::move(strategy));
}

// Compute and moving; what λ weighs is added later.
LayoutCosts layout_costs(const space::Summary& summary, const std::vector<ActionId>& actions) {
  const cluster::Cluster& cluster = *summary.problem.cluster;
  LayoutCosts costs{.layouts = actions.size()};
  const IdVector<GroupId, double> crossing = crossing_bytes(summary);
  for (GroupId group : id_range<GroupId>(summary.groups.size())) {
    costs.crossing.push_back(crossing[group]);
    for (ActionId action : actions) {
      costs.own.push_back(summary.estimates.at(group, action).compute_seconds);
    }
  }
  std::vector<Intervals> intervals;
  for (ActionId action : actions) {
    intervals.push_back(intervals_of(cluster, summary.actions.decision(action).replicas));
  }
  const Moving moving(cluster);
  for (const Intervals& from : intervals) {
    for (const Intervals& to : intervals) costs.moving.push_back(moving(from, to));
  }
  return costs;
}

}  // namespace

std::vector<std::size_t> cheapest_layouts(const LayoutCosts& costs) {
  const std::size_t layouts = costs.layouts, groups = costs.crossing.size();
  std::vector<double> least(layouts, 0), next(layouts);
  std::vector<std::size_t> before(groups * layouts, 0);
  for (std::size_t g = 0; g < groups; ++g) {
    const double bytes = g == 0 ? 0 : costs.crossing[g];
    for (std::size_t to = 0; to < layouts; ++to) {
      next[to] = std::numeric_limits<double>::infinity();
      for (std::size_t from = 0; from < layouts; ++from) {
        const double seconds = least[from] + bytes * costs.moving[from * layouts + to];
        if (seconds >= next[to]) continue;
        next[to] = seconds;
        before[g * layouts + to] = from;
      }
      next[to] += costs.own[g * layouts + to];
    }
    std::swap(least, next);
  }
  std::vector<std::size_t> chosen(groups);
  auto at = static_cast<std::size_t>(std::ranges::min_element(least) - least.begin());
  for (std::size_t g = groups; g-- > 0;) {
    chosen[g] = at;
    at = before[g * layouts + at];
  }
  return chosen;
}

std::vector<decide::Strategy> estimated_layouts(const cost::Problem& problem) {
  const space::Summary summary(problem, space::ActionTable::kSets);
  std::vector<decide::Strategy> found;
  for (const SyncMethod sync : kSyncs) {
    const std::vector<ActionId> actions = worth_trying(summary.actions, *problem.cluster, sync);
    const LayoutCosts alone = layout_costs(summary, actions);
    for (const double unhidden : kUnhidden) {
      LayoutCosts costs = alone;
      for (std::size_t i = 0; i < costs.own.size(); ++i) {
        const GroupId group(i / actions.size());
        costs.own[i] +=
            unhidden * summary.estimates.at(group, actions[i % actions.size()]).sync_seconds;
      }
      std::vector<ActionId> chosen;
      for (const std::size_t layout : cheapest_layouts(costs)) chosen.push_back(actions[layout]);
      decide::Strategy strategy = summary.actions.strategy(chosen);
      strategy.order = decide::OrderPolicy::kRankQueued;
      for (const auto either : kSyncs) add_distinct(with_sync(strategy, either), found);
    }
  }
  return found;
}

}  // namespace heterog::search
