// What-if: the step of the same decisions on a faster device or link.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"
#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::explain {

// Devices or links that become faster together: one device, all devices of one type, both
// directions of one link, all links of one kind (nic, port, socket, bus).
struct Upgrade {
  std::string name;
  std::vector<DeviceId> devices;
  std::vector<LinkId> links;
};
// All that there are of these; a type or kind where there are several. Where there are more than
// kMostOneByOne devices, only the types and kinds: each upgrade is simulated.
inline constexpr std::size_t kMostOneByOne = 32;
std::vector<Upgrade> possible_upgrades(const cluster::Cluster& cluster);

struct WhatIf {
  Upgrade upgrade;
  Nanoseconds step = 0;
};

// The strategy compiled and simulated again with each upgrade `factor` times as fast: what a device
// computes takes 1/factor of its time; what crosses a link is computed from its new bandwidth, so
// servers and the algorithms of collectives are chosen anew. Ranks too. The shares of the batch
// stay. Sorted by step, shortest first; ties in the order given. A step can become longer: no list
// schedule is free of anomalies.
struct WhatIfOptions {
  double factor = 2;
  compiler::CompileOptions compile = {};
};
std::vector<WhatIf> what_if(const cost::Problem& problem, const decide::Strategy& strategy,
                            const std::vector<Upgrade>& upgrades, const WhatIfOptions& options);

}  // namespace heterog::explain
