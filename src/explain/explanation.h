// Why a plan's step takes as long as it does: critical path, waits, bounds, and what would help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "explain/stages.h"
#include "explain/what_if.h"
#include "sim/bounds.h"
#include "sim/critical_path.h"
#include "sim/simulator.h"

namespace heterog::explain {

struct Explanation {
  std::vector<sim::Segment> path;
  IdVector<DeviceId, sim::DeviceTime> times;
  sim::Bounds bounds;
  Nanoseconds any_plan = 0;  // no plan of the problem is faster (sim/least_step.h)
  std::vector<WhatIf> upgrades;
  std::optional<PipelineTime> pipeline;  // of plans that are one
};
Explanation explain_plan(const cost::Problem& problem, const decide::Strategy& strategy,
                         const sim::Simulated& simulated, const compiler::CompileOptions& compile);

// The device that a device waits for longest; invalid: for none.
DeviceId straggler(const sim::DeviceTime& time);

// Time by what it is spent on; the longest first.
struct Spent {
  std::string what;
  Nanoseconds time = 0;
};
// On the critical path: "forward", "backward", "update", and the kinds of tasks that are no
// operator.
std::vector<Spent> spent_by_kind(const cost::Problem& problem, const sim::Simulated& simulated,
                                 const Explanation& explanation);
// On the critical path, by the problem's groups.
std::vector<Spent> spent_by_group(const cost::Problem& problem, const sim::Simulated& simulated,
                                  const Explanation& explanation);
// Busy time of compute streams and links.
std::vector<Spent> busiest(const cost::Problem& problem, const sim::Simulated& simulated);

}  // namespace heterog::explain
