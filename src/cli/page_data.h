// The figures of the HTML page, as its script reads them: times in whole nanoseconds.
#pragma once

#include <string>
#include <vector>

#include "cli/explanation.h"
#include "cli/report.h"
#include "compiler/strategy.h"

namespace heterog::cli {

// A row of the table of planners.
struct PlannerRow {
  std::string name;
  bool baseline = false;
  Nanoseconds step = 0;
  bool feasible = false;
  Bytes missing_bytes = 0;
};
OrderedJson planners_data(const std::vector<PlannerRow>& rows);

// Everything that is drawn of one plan.
struct DrawnPlan {
  std::string name;
  std::string planner;
  const compiler::Strategy& strategy;
  const Simulated& simulated;
  const Explanation& explanation;
};
OrderedJson plan_data(const cost::Problem& problem, const DrawnPlan& drawn);

}  // namespace heterog::cli
