// How full a layout makes the fullest device, by estimate: what tells the policy when forward
// passes have to run again.
#pragma once

#include <vector>

#include "decide/strategy.h"
#include "space/layout_costs.h"
#include "space/summary.h"

namespace heterog::learn {

struct MemoryNeed {
  double once = 0;   // log of bytes over the device's capacity, of the device where it is greatest
  double again = 0;  // the same where all forward passes run again
};
// `replicas`: of each group, all of which keep what they make until the backward pass. `sharded`:
// optimizer state lies in shards.
MemoryNeed memory_need(const space::Summary& summary, const space::LayoutCosts& costs,
                       const std::vector<const std::vector<decide::Replica>*>& replicas,
                       bool sharded);

}  // namespace heterog::learn
