// Devices by name, machine and type; then every part of a strategy through that map.
#include "decide/carry_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "decide/check_strategy.h"
#include "decide/lost_servers.h"

namespace heterog::decide {
namespace {

using Planned = DeviceId;  // a device by the plan's number

// "host-a" of "host-a/gpu1".
std::string_view machine_of(std::string_view device) { return device.substr(0, device.rfind('/')); }

// Named as text: at most three.
std::string names_text(const std::vector<PlannedDevice>& devices) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(devices.size(), kMost); ++i) {
    text += (i > 0 ? ", " : "") + printable(devices[i].name);
  }
  return text + (devices.size() > kMost ? ", …" : "");
}

class Matching {
 public:
  Matching(const std::vector<PlannedDevice>& planned, const cluster::Cluster& cluster)
      : planned_(planned),
        cluster_(cluster),
        taken_(cluster.device_count(), false),
        work_(cluster.device_count(), 0) {
    match_.of.assign(planned.size(), DeviceId());
    match_.gone.assign(planned.size(), false);
  }

  DeviceMatch match() {
    pair([](const PlannedDevice& was, const Now& now) {
      return was.name == now.name && was.type == now.type;
    });
    pair([](const PlannedDevice& was, const Now& now) {
      return machine_of(was.name) == now.machine && was.type == now.type;
    });
    pair([](const PlannedDevice& was, const Now& now) { return was.name == now.name; });
    pair_machines();
    pair([](const PlannedDevice& was, const Now& now) { return was.type == now.type; });
    for (DeviceId device : cluster_.device_ids()) {
      if (taken_[device]) continue;
      match_.added.push_back(device);
      match_.twins.push_back(twin_of(device));
    }
    for (Planned was : id_range<Planned>(planned_.size())) {
      if (!match_.of[was].valid()) take_over(was);
    }
    return std::move(match_);
  }

 private:
  struct Now {
    std::string_view name, machine, type;
  };
  Now now(DeviceId device) const {
    return {cluster_.device(device).name, cluster_.machine(cluster_.device(device).machine).name,
            cluster_.type_of(device).name};
  }

  template <class Alike>
  void pair(const Alike& alike) {
    for (Planned was : id_range<Planned>(planned_.size())) {
      if (match_.of[was].valid()) continue;
      for (DeviceId device : cluster_.device_ids()) {
        if (taken_[device] || !alike(planned_[was.value()], now(device))) continue;
        match_.of[was] = device;
        taken_[device] = true;
        break;
      }
    }
  }

  // Each machine of the plan of which nothing is left, with the machine, none of whose devices
  // stands for one, that has most of its devices by type; of equals the one with the fewest others,
  // then the first.
  void pair_machines() {
    std::map<std::string_view, std::vector<Planned>> left;  // of whole machines
    for (Planned was : id_range<Planned>(planned_.size())) {
      left[machine_of(planned_[was.value()].name)].push_back(was);
    }
    std::erase_if(left, [&](const auto& one) {
      return std::ranges::any_of(one.second, [&](Planned was) { return match_.of[was].valid(); });
    });
    for (const auto& [name, devices] : left) {
      std::optional<MachineId> best;
      std::pair<std::ptrdiff_t, std::ptrdiff_t> most;  // devices in common, then fewer others
      for (MachineId machine : id_range<MachineId>(cluster_.machine_count())) {
        const auto common = std::ssize(in_common(devices, machine));
        const auto others = std::ssize(cluster_.machine(machine).devices) - common;
        if (common == 0 || (best && std::pair(common, -others) <= most)) continue;
        best = machine;
        most = {common, -others};
      }
      if (!best) continue;
      for (const auto& [was, device] : in_common(devices, *best)) {
        match_.of[was] = device;
        taken_[device] = true;
      }
    }
  }

  // By type, in their order; nothing of a machine of which a device stands for one already.
  std::vector<std::pair<Planned, DeviceId>> in_common(const std::vector<Planned>& devices,
                                                      MachineId machine) const {
    std::vector<DeviceId> free = cluster_.machine(machine).devices;
    if (std::ranges::any_of(free, [&](DeviceId device) { return taken_[device]; })) return {};
    std::vector<std::pair<Planned, DeviceId>> common;
    for (Planned was : devices) {
      const auto same = std::ranges::find_if(free, [&](DeviceId device) {
        return cluster_.type_of(device).name == planned_[was.value()].type;
      });
      if (same == free.end()) continue;
      common.emplace_back(was, *same);
      free.erase(same);
    }
    return common;
  }

  DeviceId twin_of(DeviceId added) const {
    DeviceId twin;
    for (DeviceId device : cluster_.device_ids()) {
      if (!taken_[device] || cluster_.device(device).type != cluster_.device(added).type) continue;
      if (cluster_.same_machine(device, added)) return device;
      if (!twin.valid()) twin = device;
    }
    return twin;
  }

  // Of devices that stand for one already.
  void take_over(Planned was) {
    match_.gone[was] = true;
    const PlannedDevice& device = planned_[was.value()];
    const auto distance = [&](DeviceId to) {
      const Now left = now(to);
      const bool machine = machine_of(device.name) == left.machine, type = device.type == left.type;
      return std::pair((machine ? 0 : 2) + (type ? 0 : 1), work_[to]);
    };
    std::optional<DeviceId> nearest;
    for (DeviceId to : cluster_.device_ids()) {
      if (taken_[to] && (!nearest || distance(to) < distance(*nearest))) nearest = to;
    }
    if (!nearest) return;  // all are gone
    match_.of[was] = *nearest;
    ++work_[*nearest];
  }

  const std::vector<PlannedDevice>& planned_;
  const cluster::Cluster& cluster_;
  IdVector<DeviceId, bool> taken_;
  IdVector<DeviceId, int> work_;  // of devices that are gone
  DeviceMatch match_;
};

// ---- the strategy through the map ----

// Each device once, at the place of its first replica.
std::vector<Replica> mapped(const std::vector<Replica>& replicas, const DeviceMatch& match,
                            const CarryOver& how) {
  const bool some_left =
      std::ranges::any_of(replicas, [&](const Replica& one) { return !match.gone[one.device]; });
  std::vector<Replica> result;
  for (const Replica& one : replicas) {
    if (how.taken_over == TakenOver::kByOthers && some_left && match.gone[one.device]) continue;
    const DeviceId to = match.of[one.device];
    const auto there = std::ranges::find(result, to, &Replica::device);
    if (there == result.end()) {
      result.push_back({to, one.weight});
    } else {
      there->weight += one.weight;
    }
  }
  for (std::size_t i = 0; how.twins_join && i < match.added.size(); ++i) {
    const auto twin = std::ranges::find(result, match.twins[i], &Replica::device);
    if (twin == result.end()) continue;
    const double weight = twin->weight;
    result.push_back({match.added[i], weight});
  }
  if (how.times_as_much.empty()) return result;
  for (Replica& one : result) one.weight *= how.times_as_much[one.device];
  return result;
}

// The decision of each group that has most of the group's computation.
IdVector<UnitId, UnitDecision> decisions_of_groups(const OtherPlan& plan,
                                                   const cost::Problem& problem) {
  IdVector<UnitId, UnitDecision> units;
  std::vector<double> seconds(plan.decisions.size());
  for (GroupId group : id_range<GroupId>(problem.grouping.count())) {
    std::ranges::fill(seconds, 0.0);
    for (OpId op : problem.grouping.members[group]) {
      // An operator that takes no time counts a little.
      seconds[plan.decision_of_op[op].value()] += problem.costs.mean_seconds(op) + 1e-12;
    }
    units.push_back(plan.decisions[static_cast<std::size_t>(std::ranges::max_element(seconds) -
                                                            seconds.begin())]);
  }
  return units;
}

// As they were: one a unit of its own, or one a group of this problem.
IdVector<UnitId, UnitDecision> decisions(const OtherPlan& plan, const cost::Problem& problem,
                                         std::string_view source) {
  const auto& units = plan.strategy.units;
  if (!plan.strategy.unit_of_op.empty()) return units;
  if (plan.grouping_hash == grouping_hash(problem) && units.size() == problem.grouping.count()) {
    return units;
  }
  if (!plan.decision_of_op.empty()) return decisions_of_groups(plan, problem);
  const auto alike = [&](const UnitDecision& unit) { return unit == units[UnitId(0)]; };
  VALIDATE(!units.empty() && std::ranges::all_of(units, alike),
           "{}: has no decision_of_op, by which decisions of groups are carried over; make it anew",
           source);
  return IdVector<UnitId, UnitDecision>(problem.grouping.count(), units[UnitId(0)]);
}

// By this cluster's numbers. Invalid: a host that serves no longer.
class Places {
 public:
  Places(const OtherPlan& plan, const DeviceMatch& match, const cluster::Cluster& cluster)
      : plan_(plan), match_(match), cluster_(cluster) {}
  DeviceId of(DeviceId was) const {
    if (was.value() < plan_.devices.size()) return match_.of[was];
    const std::string& name = plan_.hosts[was.value() - plan_.devices.size()];
    for (DeviceId host : cluster_.host_ids()) {
      if (cluster_.device(host).name == name) return host;
    }
    return {};
  }

 private:
  const OtherPlan& plan_;
  const DeviceMatch& match_;
  const cluster::Cluster& cluster_;
};

// Those of a place that there is no longer are left out.
std::vector<ParameterSync> syncs(const OtherPlan& plan, const Places& places) {
  std::vector<ParameterSync> result = plan.strategy.sync;
  for (ParameterSync& sync : result) {
    if (sync.server.valid()) sync.server = places.of(sync.server);
    std::vector<Replica> servers;
    for (const Replica& one : sync.servers) {
      const DeviceId server = places.of(one.device);
      if (!server.valid()) continue;
      const auto there = std::ranges::find(servers, server, &Replica::device);
      if (there == servers.end()) {
        servers.push_back({server, one.weight});
      } else {
        there->weight += one.weight;
      }
    }
    sync.servers = std::move(servers);
  }
  return result;
}

// A device that stands for none has the mean of the others.
IdVector<DeviceId, double> rows(const OtherPlan& plan, const DeviceMatch& match,
                                const cluster::Cluster& cluster) {
  if (plan.strategy.row_weights.empty()) return {};
  IdVector<DeviceId, double> weights(cluster.device_count(), 0.0);
  double sum = 0;
  for (Planned was : id_range<Planned>(plan.devices.size())) {
    weights[match.of[was]] += plan.strategy.row_weights[was];
    sum += plan.strategy.row_weights[was];
  }
  for (DeviceId device : match.added) {
    weights[device] = sum / static_cast<double>(cluster.device_count() - match.added.size());
  }
  return weights;
}

// A device that stands for several is in the pipeline of the first; one that stands for none in its
// twin's, or in the first, where nothing is on it.
IdVector<DeviceId, std::uint32_t> pipelines(const OtherPlan& plan, const DeviceMatch& match,
                                            const cluster::Cluster& cluster) {
  if (plan.strategy.pipeline_of.empty()) return {};
  IdVector<DeviceId, std::uint32_t> pipeline_of(cluster.device_count(), 0);
  for (std::size_t i = plan.devices.size(); i-- > 0;) {
    const Planned was(i);
    pipeline_of[match.of[was]] = plan.strategy.pipeline_of[was];
  }
  for (std::size_t i = 0; i < match.added.size(); ++i) {
    if (match.twins[i].valid()) pipeline_of[match.added[i]] = pipeline_of[match.twins[i]];
  }
  return pipeline_of;
}

}  // namespace

DeviceMatch match_devices(const std::vector<PlannedDevice>& planned,
                          const cluster::Cluster& cluster, std::string_view source) {
  DeviceMatch match = Matching(planned, cluster).match();
  VALIDATE(!std::ranges::all_of(match.gone, [](bool gone) { return gone; }),
           "{}: none of its {} devices ({}) is in cluster {}, by name or by type; plan without "
           "--from",
           source, planned.size(), names_text(planned), cluster.name());
  return match;
}

std::string gone_text(const OtherPlan& plan, const cluster::Cluster& cluster,
                      const DeviceMatch& match) {
  constexpr std::size_t kMost = 4;
  std::string text;
  std::size_t count = 0;
  for (Planned was : id_range<Planned>(plan.devices.size())) {
    const std::string name = printable(plan.devices[was.value()].name);
    const cluster::Device& device = cluster.device(match.of[was]);
    const bool moved = machine_of(name) != cluster.machine(device.machine).name;
    if (!(match.gone[was] || moved) || ++count > kMost) continue;
    if (!text.empty()) text += "; ";
    text += match.gone[was] ? fmt::format("{} is gone, {} is the nearest left", name, device.name)
                            : fmt::format("{} is {} now", name, device.name);
  }
  if (count > kMost) text += fmt::format("; and {} more", count - kMost);
  return text;
}

Strategy carry_over(const OtherPlan& plan, const DeviceMatch& match, const cost::Problem& problem,
                    const CarryOver& how, std::string_view source) {
  const cluster::Cluster& cluster = *problem.cluster;
  Strategy carried = plan.strategy;
  carried.sync.clear();
  carried.priorities.clear();
  if (carried.order == OrderPolicy::kPriority && carried.pattern == Pattern::kNone) {
    set_plain_order(carried, OrderPolicy::kRank);
  }
  carried.units = decisions(plan, problem, source);
  for (UnitDecision& unit : carried.units) {
    unit.replicas = mapped(unit.replicas, match, how);
  }
  carried.row_weights = rows(plan, match, cluster);
  carried.pipeline_of = pipelines(plan, match, cluster);
  if (carried.micro_batches > problem.batch) carried.micro_batches = problem.batch;
  if (carried.micro_batches == 1 && carried.pattern != Pattern::kNone) {
    carried.pattern = Pattern::kNone;
    carried.strict = false;
    carried.pipeline_of.clear();
    set_plain_order(carried, OrderPolicy::kRank);
  }
  carried.sync = syncs(plan, Places(plan, match, cluster));
  carried.sync = without_lost_servers(problem, carried);
  check_strategy(problem, carried, source);
  return carried;
}

}  // namespace heterog::decide
