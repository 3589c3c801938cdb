// Profile of runs: what they measured of the operators, as planning reads it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "cost/profile.h"
#include "runtime/ranks/records.h"

namespace heterog::measure {

// Steps of a plan, and the costs that it was compiled with. All have to outlive it.
struct RecordedRun {
  const cost::Problem& problem;
  const compiler::Plan& plan;
  const std::vector<runtime::MeasuredStep>& steps;  // at least one
};

// The profile of one type of device: medians over the steps and the devices of the type, of what
// operators take at their own pace (own_pace.h), those of all runs together. A task is off by
// measured over planned duration, and so are its ops: what a plan adds to their costs (waiting for
// the slowest device, decision 18; one launch for several updates) stays with the plan.
//
// Between the sizes that were measured, and beyond, an op costs what the model says, scaled to meet
// them (cost::Between::kModel). One that no device of the type ran costs what `believed` says times
// what its class is off by (cost/class_ratios.h). Nothing, unfinished, if no device of the type ran
// anything.
cost::Profile profile_of_runs(const cost::Problem& believed, std::span<const RecordedRun> runs,
                              DeviceTypeId type);

}  // namespace heterog::measure
