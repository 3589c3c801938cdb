// Everything that planners and the compiler read, built once and shared by threads.
#pragma once

#include <cstdint>
#include <memory>

#include "cluster/cluster.h"
#include "cost/compression.h"
#include "cost/cost_table.h"
#include "graph/folded.h"
#include "graph/grouping.h"
#include "graph/model_graph.h"
#include "graph/split.h"

namespace heterog::cost {

// One training step to be planned: all that a planner, the compiler and the policy read, built once
// by make_problem() and never changed, so that any number of threads share it.
//
//   const auto problem = make_problem(graph, cluster, CalibratedModel(), 192);
//   problem->folded->ops                             ops that become tasks
//   problem->splits->rules[tensor]                   what slices of a tensor make together
//   problem->costs.duration(op, type, samples)       how long an op takes on a slice
//   problem->grouping.group_of[op]                   what is decided together
struct Problem {
  std::shared_ptr<const graph::ModelGraph> graph;
  std::shared_ptr<const graph::SplitAnalysis> splits;
  std::shared_ptr<const graph::FoldedGraph> folded;
  std::shared_ptr<const cluster::Cluster> cluster;
  CostTable costs;
  graph::Grouping grouping;
  std::int64_t batch = 0;
  std::vector<int> proportional;  // CP replicas of each device
  Compression compression = {};   // that the user allows for gradients; no planner decides it
};

struct ProblemOptions {
  int max_groups = 2000;  // HeteroG §5
  Compression compression = {};
};

// analyze() and group_ops() for this graph, cluster and batch. Throws as they do.
std::unique_ptr<const Problem> make_problem(std::shared_ptr<const graph::ModelGraph> graph,
                                            std::shared_ptr<const cluster::Cluster> cluster,
                                            const CostModel& model, std::int64_t batch,
                                            const ProblemOptions& options = {});

}  // namespace heterog::cost
