// The figures of the HTML page, as its script reads them: times in whole nanoseconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "explain/explanation.h"
#include "explain/json.h"
#include "explain/measured_lanes.h"
#include "sim/simulator.h"

namespace heterog::explain {

// A row of the table of planners.
struct PlannerRow {
  std::string name;
  bool baseline = false;
  Nanoseconds step = 0;
  bool feasible = false;
  Bytes missing_bytes = 0;
};

// Everything that is drawn of one plan.
struct DrawnPlan {
  std::string name;
  std::string planner;
  const decide::Strategy& strategy;
  const sim::Simulated& simulated;
  const Explanation& explanation;
  std::optional<MeasuredLanes> measured = {};  // drawn below what is predicted
};
OrderedJson plan_data(const cost::Problem& problem, DrawnPlan drawn);

// The whole page; `plans`: of plan_data.
OrderedJson page_data(const cost::Problem& problem, const std::vector<PlannerRow>& planners,
                      OrderedJson plans);

}  // namespace heterog::explain
