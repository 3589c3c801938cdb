// Drift: measured against predicted time of the tasks of a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/plan.h"
#include "runtime/ranks/records.h"

namespace heterog::measure {

// Measured and predicted time of tasks of one kind.
struct Drift {
  std::string what;  // "matrix products on a/gpu0", "a/gpu0 → b/gpu0"
  std::int64_t tasks = 0;
  double predicted_seconds = 0;  // in a step, added up
  double measured_seconds = 0;   // typical durations, added up
  double ratio() const { return measured_seconds / predicted_seconds; }
};
// By class of operator and device, by pair of devices, by device set; those that take longest
// first. `steps`: at least one.
std::vector<Drift> drift(const runtime::Job& job, const compiler::Plan& plan,
                         const std::vector<runtime::MeasuredStep>& steps);

// Each task's mean duration over the middle half of the steps, by how long these took.
IdVector<TaskId, Nanoseconds> typical_durations(const std::vector<runtime::MeasuredStep>& steps);

}  // namespace heterog::measure
