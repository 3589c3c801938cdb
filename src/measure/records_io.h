// Files of recorded steps (docs/formats.md).
#pragma once

#include <string>
#include <vector>

#include "compiler/plan.h"
#include "runtime/ranks/records.h"

namespace heterog::measure {

// Parallel: when the tasks of each step ran, and how long the slowest rank took for it.
struct RecordedSteps {
  std::vector<runtime::MeasuredStep> steps;
  std::vector<double> seconds;
};

void write_records(const std::string& path, const RecordedSteps& records);
// Throws an input error if they are of a plan with another number of tasks.
RecordedSteps read_records(const std::string& path, const compiler::Plan& plan);

}  // namespace heterog::measure
