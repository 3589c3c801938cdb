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
    : problem_(problem), devices_(static_cast<int>(problem.cluster->device_count())) {
  for (DeviceId device : problem.cluster->device_ids()) {
    decisions_.push_back(compiler::single_decision(device));
  }
  decisions_.push_back(compiler::even_decision(problem, SyncMethod::kParameterServer));
  decisions_.push_back(compiler::even_decision(problem, SyncMethod::kAllReduce));
  decisions_.push_back(compiler::proportional_decision(problem, SyncMethod::kParameterServer));
  decisions_.push_back(compiler::proportional_decision(problem, SyncMethod::kAllReduce));
}

std::string ActionSpace::name(int action) const {
  EXPECT(action >= 0 && action < size());
  if (action >= devices_) return std::string(kSchemeNames[action - devices_]);
  return problem_.cluster->device(DeviceId(static_cast<std::size_t>(action))).name;
}

compiler::Strategy ActionSpace::strategy(std::span<const std::uint8_t> actions) const {
  EXPECT(actions.size() == problem_.grouping.count());
  compiler::Strategy strategy;
  strategy.units.reserve(actions.size());
  for (std::uint8_t action : actions) {
    EXPECT(action < size());
    strategy.units.push_back(decisions_[action]);
  }
  return strategy;
}

}  // namespace heterog::planner
