// HeteroG's M+4 actions of a group (§4.1.2): one device, or replicas even or proportional × PS or
// AR.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "compiler/strategy.h"
#include "cost/problem.h"

namespace heterog::planner {

// An index of 0 … M+3, of the width of every id: clusters have more devices than a byte counts.
using ActionId = Id<struct ActionTag>;

// Actions 0 … M−1: that device alone; then the four data-parallel schemes in this order.
enum class Scheme : std::uint8_t {
  kEvenPs,
  kEvenAllReduce,
  kProportionalPs,
  kProportionalAllReduce
};
inline constexpr int kSchemeCount = 4;

class ActionSpace {
 public:
  explicit ActionSpace(const cost::Problem& problem);
  std::size_t size() const { return decisions_.size(); }
  std::size_t devices() const { return devices_; }
  ActionId action(DeviceId device) const { return ActionId(device.value()); }
  ActionId action(Scheme scheme) const {
    return ActionId(devices_ + static_cast<std::size_t>(scheme));
  }
  std::string name(ActionId action) const;  // "v100-0/gpu0", "EV-PS"
  const compiler::UnitDecision& decision(ActionId action) const { return decisions_[action]; }
  // One action per group.
  compiler::Strategy strategy(std::span<const ActionId> actions) const;

 private:
  const cost::Problem& problem_;
  std::size_t devices_;
  IdVector<ActionId, compiler::UnitDecision> decisions_;
};

}  // namespace heterog::planner
