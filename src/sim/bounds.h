// Lower bounds of a plan's step, in whatever order its tasks run.
#pragma once

#include "compiler/plan.h"

namespace heterog::sim {

struct Bounds {
  Nanoseconds chain = 0;        // its longest chain of tasks
  Nanoseconds stream = 0;       // work of its busiest device
  Nanoseconds link = 0;         // bytes over bandwidth of its busiest link
  Nanoseconds collectives = 0;  // of its busiest device, or of all devices where they are serial
  // Bounds of one resource at a time, and of a stream that feeds a link (sim/one_machine.h).
  Nanoseconds one_machine = 0;
  Nanoseconds two_machines = 0;
  // The largest of them.
  Nanoseconds step() const;
};
Bounds bounds(const compiler::Plan& plan);

}  // namespace heterog::sim
