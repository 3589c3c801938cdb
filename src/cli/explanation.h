// Why a plan's step takes as long as it does, as a program and as a person reads it.
#pragma once

#include <string>
#include <vector>

#include "cli/report.h"
#include "compiler/compile.h"
#include "compiler/strategy.h"
#include "planner/what_if.h"
#include "sim/bounds.h"
#include "sim/critical_path.h"

namespace heterog::cli {

struct Explanation {
  std::vector<sim::Segment> path;
  IdVector<DeviceId, sim::DeviceTime> times;
  sim::Bounds bounds;
  std::vector<planner::WhatIf> upgrades;
};
Explanation explain(const cost::Problem& problem, const compiler::Strategy& strategy,
                    const Simulated& simulated, const compiler::CompileOptions& compile);

// The device that a device waits for longest; invalid: for none.
DeviceId straggler(const sim::DeviceTime& time);

// Time on the critical path, by what it is spent on; the longest first.
struct Spent {
  std::string what;
  Nanoseconds time = 0;
};
// "forward", "backward", "update", and the kinds of tasks that are no operator.
std::vector<Spent> spent_by_kind(const cost::Problem& problem, const Simulated& simulated,
                                 const Explanation& explanation);
// The problem's groups, named by what their operators have in common.
std::vector<Spent> spent_by_group(const cost::Problem& problem, const Simulated& simulated,
                                  const Explanation& explanation);
std::string group_name(const cost::Problem& problem, GroupId group);

// One line a stretch of the critical path.
struct PathLine {
  Nanoseconds begin = 0;
  Nanoseconds length = 0;
  std::string what;
  std::string why;  // it starts then and no earlier; empty at the start of the step
};
std::vector<PathLine> path_lines(const cost::Problem& problem, const Simulated& simulated,
                                 const Explanation& explanation, std::size_t most);

// The keys of `explain --json`, after those that name the problem.
OrderedJson explanation_json(const cost::Problem& problem, const Simulated& simulated,
                             const Explanation& explanation);
std::string explanation_text(const cost::Problem& problem, const Simulated& simulated,
                             const Explanation& explanation);

}  // namespace heterog::cli
