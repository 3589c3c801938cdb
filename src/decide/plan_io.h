// The plan file: the decisions, what they refer to, what was predicted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Those before had every micro-batch spelled out.
inline constexpr int kPlanVersion = 3;

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
// The problem must be made with `read_plan_header`'s batch, max_groups and compression.
struct PlanHeader {
  std::int64_t batch = 0;
  int max_groups = 2000;
  std::uint64_t graph_hash = 0;
  std::uint64_t cluster_hash = 0;
  cost::Compression compression = {};
};
PlanHeader read_plan_header(const std::string& path);
// Of the groups that units are: they depend on the costs of the operators and on the batch.
std::uint64_t grouping_hash(const cost::Problem& problem);

struct PlannedDevice {
  std::string name;
  std::string type;
};

// What a plan file says, whatever cluster and batch it is for (decide/carry_over.h). Its devices
// are numbered as `devices`, hosts behind them.
struct OtherPlan {
  std::int64_t batch = 0;
  std::vector<PlannedDevice> devices;
  std::vector<std::string> hosts = {};  // that serve some parameter, by name
  std::string planner = {};
  Strategy strategy = {};  // without priorities of single ops
  // If the units are groups: which groups, and the decision of each op unless all decide alike.
  std::uint64_t grouping_hash = 0;
  std::vector<UnitDecision> decisions = {};
  IdVector<OpId, UnitId> decision_of_op = {};
};
// Throws an input error for a plan of another graph, or one that does not say its devices' types.
OtherPlan read_other_plan(const std::string& path, const graph::ModelGraph& graph);

PlanRecord read_plan(const std::string& path, const cost::Problem& problem);
PlanRecord parse_plan(const std::string& text, const std::string& source,
                      const cost::Problem& problem);

}  // namespace heterog::decide
