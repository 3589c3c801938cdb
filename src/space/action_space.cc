// The tables of actions, and the decision that each row means.
#include "space/action_space.h"

#include <algorithm>
#include <utility>

#include "space/device_sets.h"

namespace heterog::space {

namespace {

using decide::SyncMethod;

}  // namespace

ActionSpace::ActionSpace(const cost::Problem& problem, ActionTable table) : problem_(problem) {
  for (DeviceId device : problem.cluster->device_ids()) add({.device = device});
  for (const Action& action : kReplicated) add(action);
  if (table == ActionTable::kSets) add_sets();
}

void ActionSpace::add_sets() {
  const cluster::Cluster& cluster = *problem_.cluster;
  const DeviceSets sets = device_sets(problem_);
  std::vector<std::pair<std::string, std::vector<DeviceId>>> named;
  const auto name_set = [&](std::string name, const std::vector<DeviceId>& devices) {
    const bool known =
        std::ranges::any_of(named, [&](const auto& other) { return other.second == devices; });
    if (devices.size() > 1 && !known) named.emplace_back(std::move(name), devices);
  };
  name_set("all", sets.fastest.back());
  for (const auto& type : sets.types) {
    name_set(fmt::format("{} x {}", type.size(), cluster.type_of(type.front()).name), type);
  }
  for (std::size_t i = 1; i < sets.fastest.size(); ++i) {
    name_set(fmt::format("{} fastest", sets.fastest[i].size()), sets.fastest[i]);
  }
  for (const auto& machine : sets.machines) {
    name_set(cluster.machine(cluster.device(machine.front()).machine).name, machine);
  }
  const ModelSeconds seconds(problem_);
  for (auto& [name, devices] : named) {
    const SetId set = set_replicas_.push_back(balanced_replicas(problem_, seconds, devices));
    set_names_.push_back(std::move(name));
    for (SyncMethod sync : {SyncMethod::kParameterServer, SyncMethod::kAllReduce}) {
      add({.placement = Placement::kBalanced, .sync = sync, .set = set});
    }
  }
}

void ActionSpace::add(const Action& action) {
  decide::UnitDecision decision;
  switch (action.placement) {
    case Placement::kSingle:
      decision = decide::single_decision(action.device);
      break;
    case Placement::kEven:
      decision = decide::even_decision(problem_, action.sync);
      break;
    case Placement::kProportional:
      decision = decide::proportional_decision(problem_, action.sync);
      break;
    case Placement::kBalanced:
      decision = {.replicas = set_replicas_[action.set], .sync = action.sync};
      break;
  }
  decisions_.push_back(std::move(decision));
  ids_.emplace(action, actions_.push_back(action));
}

ActionId ActionSpace::id(const Action& action) const {
  const auto at = ids_.find(action);
  ENSURE(at != ids_.end());
  return at->second;
}

std::string ActionSpace::name(ActionId id) const {
  const Action& action = actions_[id];
  const std::string sync = action.sync == SyncMethod::kParameterServer ? "-PS" : "-AR";
  switch (action.placement) {
    case Placement::kSingle:
      return problem_.cluster->device(action.device).name;
    case Placement::kEven:
      return "EV" + sync;
    case Placement::kProportional:
      return "CP" + sync;
    case Placement::kBalanced:
      return set_names_[action.set] + sync;
  }
  ENSURE(false);
}

decide::Strategy ActionSpace::strategy(std::span<const ActionId> actions) const {
  EXPECT(actions.size() == problem_.grouping.count());
  decide::Strategy strategy;
  strategy.units.reserve(actions.size());
  for (ActionId action : actions) strategy.units.push_back(decisions_[action]);
  return strategy;
}

}  // namespace heterog::space
