// The plan file: the decisions, what they refer to, what was predicted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::decide {

// The contents of a plan file. Predictions are copied from the simulator.
struct PlanRecord {
  Strategy strategy;
  std::string planner;
  int max_groups = 2000;  // the grouping that the units refer to
  double step_seconds = 0;
  bool feasible = false;
  std::vector<Bytes> peak_bytes;  // one a device
};

// Written with the hashes of graph and cluster and the batch; the reader refuses a plan for another
// graph, cluster or batch, each with one line.
void write_plan(const std::string& path, const PlanRecord& record, const cost::Problem& problem);
// The problem must be made with `read_plan_header`'s batch and max_groups.
struct PlanHeader {
  std::int64_t batch = 0;
  int max_groups = 2000;
  std::uint64_t graph_hash = 0;
  std::uint64_t cluster_hash = 0;
};
PlanHeader read_plan_header(const std::string& path);
PlanRecord read_plan(const std::string& path, const cost::Problem& problem);
PlanRecord parse_plan(const std::string& text, const std::string& source,
                      const cost::Problem& problem);

}  // namespace heterog::decide
