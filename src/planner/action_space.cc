// The table of a problem's M+4 decisions.
#include "planner/action_space.h"

#include <array>
#include <string_view>

namespace heterog::planner {

namespace {

using compiler::SyncMethod;

constexpr std::array<std::string_view, kSchemeCount> kSchemeNames = {"EV-PS", "EV-AR", "CP-PS",
                                                                     "CP-AR"};

}  // namespace

ActionSpace::ActionSpace(const cost::Problem& problem)
    : problem_(problem), devices_(problem.cluster->device_count()) {
  for (DeviceId device : problem.cluster->device_ids()) {
    decisions_.push_back(compiler::single_decision(device));
  }
  decisions_.push_back(compiler::even_decision(problem, SyncMethod::kParameterServer));
  decisions_.push_back(compiler::even_decision(problem, SyncMethod::kAllReduce));
  decisions_.push_back(compiler::proportional_decision(problem, SyncMethod::kParameterServer));
  decisions_.push_back(compiler::proportional_decision(problem, SyncMethod::kAllReduce));
}

std::string ActionSpace::name(ActionId action) const {
  EXPECT(action.value() < size());
  if (action.value() >= devices_) return std::string(kSchemeNames[action.value() - devices_]);
  return problem_.cluster->device(DeviceId(action.value())).name;
}

compiler::Strategy ActionSpace::strategy(std::span<const ActionId> actions) const {
  EXPECT(actions.size() == problem_.grouping.count());
  compiler::Strategy strategy;
  strategy.units.reserve(actions.size());
  for (ActionId action : actions) strategy.units.push_back(decisions_[action]);
  return strategy;
}

}  // namespace heterog::planner
