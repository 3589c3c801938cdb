// The table of a problem's M+4 actions, and the decision that each of them means.
#include "space/action_space.h"

namespace heterog::space {

namespace {

using compiler::SyncMethod;

compiler::UnitDecision decision_of(const cost::Problem& problem, const Action& action) {
  switch (action.placement) {
    case Placement::kSingle:
      return compiler::single_decision(action.device);
    case Placement::kEven:
      return compiler::even_decision(problem, action.sync);
    case Placement::kProportional:
      return compiler::proportional_decision(problem, action.sync);
  }
  ENSURE(false);
}

}  // namespace

ActionSpace::ActionSpace(const cost::Problem& problem) : problem_(problem) {
  for (DeviceId device : problem.cluster->device_ids()) add({.device = device});
  for (const Action& action : kReplicated) add(action);
}

void ActionSpace::add(const Action& action) {
  decisions_.push_back(decision_of(problem_, action));
  ids_.emplace(action, actions_.push_back(action));
}

ActionId ActionSpace::id(const Action& action) const {
  const auto at = ids_.find(action);
  ENSURE(at != ids_.end());
  return at->second;
}

std::string ActionSpace::name(ActionId id) const {
  const Action& action = actions_[id];
  if (action.placement == Placement::kSingle) return problem_.cluster->device(action.device).name;
  return std::string(action.placement == Placement::kEven ? "EV" : "CP") +
         (action.sync == SyncMethod::kParameterServer ? "-PS" : "-AR");
}

compiler::Strategy ActionSpace::strategy(std::span<const ActionId> actions) const {
  EXPECT(actions.size() == problem_.grouping.count());
  compiler::Strategy strategy;
  strategy.units.reserve(actions.size());
  for (ActionId action : actions) strategy.units.push_back(decisions_[action]);
  return strategy;
}

}  // namespace heterog::space
