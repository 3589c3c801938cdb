// Traces of a run, as lanes of the page beside the simulated ones.
#pragma once

#include <string>

#include "cost/problem.h"
#include "explain/json.h"

namespace heterog::explain {

// Reads DIR/rank0.json, rank1.json, … (heterog run --trace): one lane for each device's
// computation, one for its collectives, and one for what arrived over each link. `tasks`: of the
// plan. Throws an input error if a file is missing, or is not of such a run.
struct MeasuredLanes {
  OrderedJson lanes;
  Nanoseconds end = 0;  // of the last task
};
MeasuredLanes measured_lanes(const std::string& folder, const cost::Problem& problem,
                             std::size_t tasks);

}  // namespace heterog::explain
