// HeteroG's M+4 actions of a group (§4.1.2): one device, or replicas even or proportional × PS or
// AR.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/strategy.h"
#include "cost/problem.h"

namespace heterog::planner {

// 0 … M−1: that device alone; then the four data-parallel schemes in this order.
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
  int size() const { return devices_ + kSchemeCount; }
  int devices() const { return devices_; }
  int action(DeviceId device) const { return static_cast<int>(device.value()); }
  int action(Scheme scheme) const { return devices_ + static_cast<int>(scheme); }
  std::string name(int action) const;  // "v100-0/gpu0", "EV-PS"
  const compiler::UnitDecision& decision(int action) const { return decisions_[action]; }
  // One action a group.
  compiler::Strategy strategy(std::span<const std::uint8_t> actions) const;

 private:
  const cost::Problem& problem_;
  int devices_;
  std::vector<compiler::UnitDecision> decisions_;
};

}  // namespace heterog::planner
