// A graph's step on one device, whatever that could do: for measuring.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "graph/model_graph.h"

namespace heterog::loading {

struct OneDevicePlan {
  std::shared_ptr<const cost::Problem> problem;
  compiler::Plan plan;
  std::vector<TaskId> dispatch;  // in the order of the graph
};
OneDevicePlan one_device_plan(std::shared_ptr<const graph::ModelGraph> graph, std::int64_t samples);

}  // namespace heterog::loading
