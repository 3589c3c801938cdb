// Compiles and simulates a strategy on machines that are a little better.
#include "explain/what_if.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "compiler/order.h"
#include "decide/layout.h"
#include "decide/pass_turns.h"
#include "sim/improved_order.h"
#include "sim/simulator.h"

namespace heterog::explain {
namespace {

// "v100/nic.in" and "v100/nic.out" are one wire.
std::string wire_name(const std::string& link) {
  for (const char* direction : {".in", ".out", ".up", ".down"}) {
    if (link.ends_with(direction)) return link.substr(0, link.rfind('.'));
  }
  return link;
}

// "nic", "socket", "bus"; "port" of a device or host.
std::string kind_of_wire(const std::string& wire) {
  const std::string kind = wire.substr(wire.rfind('/') + 1);
  return kind.starts_with("gpu") || kind == "host" ? "port" : kind;
}

bool on_a_faster_device(const compiler::Plan& plan, TaskId task, const Upgrade& upgrade) {
  return std::any_of(upgrade.devices.begin(), upgrade.devices.end(), [&](DeviceId device) {
    return std::ranges::any_of(plan.holds[task], [&](const compiler::Hold& hold) {
      return hold.resource == plan.compute_stream(device);
    });
  });
}

// What the devices compute takes 1/factor of its time, rounded up.
void speed_up(compiler::Plan& plan, decide::OrderPolicy order,
              std::span<const decide::OpPriority> priorities, const Upgrade& upgrade,
              double factor) {
  for (TaskId task : plan.task_ids()) {
    if (!on_a_faster_device(plan, task, upgrade)) continue;
    plan.duration[task] = to_nanoseconds(to_seconds(plan.duration[task]) / factor);
    for (compiler::Hold& hold : plan.holds.mutable_row(task)) {
      hold.duration = std::min(hold.duration, plan.duration[task]);
    }
  }
  compiler::set_order(plan, order, priorities);
}

}  // namespace

std::vector<Upgrade> possible_upgrades(const cluster::Cluster& cluster) {
  std::vector<Upgrade> upgrades;
  const bool one_by_one = cluster.place_count() <= kMostOneByOne;
  std::map<DeviceTypeId, std::vector<DeviceId>> of_type;
  for (DeviceId device : cluster.place_ids()) {
    if (one_by_one) upgrades.push_back({cluster.device(device).name, {device}, {}});
    of_type[cluster.device(device).type].push_back(device);
  }
  for (const auto& [type, devices] : of_type) {
    if (one_by_one && devices.size() < 2) continue;
    upgrades.push_back({"all " + cluster.type(type).name, devices, {}});
  }
  std::map<std::string, std::size_t> known;
  std::map<std::string, std::set<std::string>> wires_of_kind;
  const auto add_link = [&](const std::string& name, LinkId link) {
    const auto [at, is_new] = known.try_emplace(name, upgrades.size());
    if (is_new) upgrades.push_back({name, {}, {}});
    upgrades[at->second].links.push_back(link);
  };
  for (LinkId link : id_range<LinkId>(cluster.link_count())) {
    if (cluster.is_connection(link)) continue;
    const std::string wire = wire_name(cluster.link(link).name);
    wires_of_kind[kind_of_wire(wire)].insert(wire);
    if (one_by_one) add_link("link " + wire, link);
  }
  for (LinkId link : id_range<LinkId>(cluster.link_count())) {
    if (cluster.is_connection(link)) {
      add_link("all connections", link);
      continue;
    }
    const std::string kind = kind_of_wire(wire_name(cluster.link(link).name));
    if (!one_by_one || wires_of_kind[kind].size() > 1) add_link("all links of kind " + kind, link);
  }
  return upgrades;
}

std::vector<WhatIf> what_if(const cost::Problem& problem, const decide::Strategy& given,
                            const std::vector<Upgrade>& upgrades, const WhatIfOptions& options) {
  compiler::Plan plan = compiler::compile(problem, given, options.compile);
  const decide::Strategy strategy = sim::with_priorities_of_rounds(given, plan);
  if (given.order_rounds > 0) compiler::set_order(plan, strategy.order, strategy.priorities);
  const std::vector<decide::OpPriority> priorities =
      decide::priorities_of(problem, strategy, decide::lay_out(problem, strategy));
  sim::Simulator simulator;
  std::vector<WhatIf> results;
  for (const Upgrade& upgrade : upgrades) {
    compiler::Plan faster;
    if (upgrade.links.empty()) {
      faster = plan;
    } else {
      cost::Problem changed = problem;
      changed.cluster = std::make_shared<const cluster::Cluster>(
          cluster::with_faster_links(*problem.cluster, upgrade.links, options.factor));
      faster = compiler::compile(changed, strategy, options.compile);
    }
    if (!upgrade.devices.empty())
      speed_up(faster, strategy.order, priorities, upgrade, options.factor);
    results.push_back({upgrade, simulator.simulate(faster, strategy.order).step});
  }
  std::stable_sort(results.begin(), results.end(),
                   [](const WhatIf& a, const WhatIf& b) { return a.step < b.step; });
  return results;
}

}  // namespace heterog::explain
