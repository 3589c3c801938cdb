// Runs whole steps of a graph on this machine's CPU, op by op, and times them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::measure {

struct StepOptions {
  std::int64_t samples = 1;
  int threads = 1;  // of one operator
  int repeat = 3;   // steps of the median, after one to warm up
  std::uint64_t seed = 0;
};

// Median seconds of a step: every op in the order of the graph, each called through the dispatcher,
// tensors freed once nothing reads them. The time to look arguments up is not counted.
double measure_step(const graph::ModelGraph& graph, const StepOptions& options);

}  // namespace heterog::measure
