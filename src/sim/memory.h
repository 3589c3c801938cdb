// The memory of each device over a simulated step.
#pragma once

#include <vector>

#include "compiler/plan.h"
#include "sim/simulator.h"

namespace heterog::sim {

struct MemoryPoint {
  Nanoseconds time = 0;
  DeviceId device;
  Bytes bytes = 0;  // from this time on, static memory included
};

// Replays allocations and releases of a result with its timeline. One point a device and time at
// which its memory changes (what it is at the end of that moment), plus one a device at time 0.
std::vector<MemoryPoint> memory_curve(const compiler::Plan& plan, const SimResult& result);

}  // namespace heterog::sim
