// Chrome trace of a simulated step (chrome://tracing, Perfetto).
#pragma once

#include <optional>
#include <string>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "sim/simulator.h"

namespace heterog::sim {

struct TraceOptions {
  // The rank whose trace of a measured run this is, which holds what its device did. A slice lasts
  // as long as its task, which may have held each resource for less.
  std::optional<DeviceId> rank = {};
};

// Object form, µs from 0; one pid per device (and one for links), one tid per stream, counters for
// memory, flows for transfers. Needs a result with the timeline.
std::string chrome_trace(const cost::Problem& problem, const compiler::Plan& plan,
                         const SimResult& result, const TraceOptions& options = {});

}  // namespace heterog::sim
