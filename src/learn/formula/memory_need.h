// How full a layout makes the fullest device, by estimate: what tells the policy when forward
// passes have to run again.
#pragma once

#include <vector>

#include "decide/strategy.h"
#include "space/summary.h"

namespace heterog::learn {

struct MemoryNeed {
  double once = 0;   // log of bytes over the device's capacity, of the device where it is greatest
  double again = 0;  // the same where all forward passes run again
  // The same as `once` where gradients of parameters are put off until the last micro-batch: no
  // more than this. Of what is no pipeline, as `once`.
  double put_off = 0;
};

// [groups] Bytes that a group's forward pass makes for later groups, of the whole batch: what is
// kept where forward passes run again.
std::vector<double> made_for_later(const cost::Problem& problem);

// `made`: made_for_later(). `replicas`: of each group, all of which keep what they make until the
// backward pass. `sharded`: optimizer state lies in shards.
MemoryNeed memory_need(const space::Summary& summary, const std::vector<double>& made,
                       const std::vector<const std::vector<decide::Replica>*>& replicas,
                       bool sharded);

}  // namespace heterog::learn
