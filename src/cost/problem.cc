// Builds a Problem: splits, costs, groups and proportional replicas, in that order.
#include "cost/problem.h"

#include <cmath>
#include <utility>

namespace heterog::cost {

namespace {

// Every tensor to or on every device at once is far more than any plan takes or moves; 2^61 leaves
// room to add a few such sums.
void check_sizes(const graph::ModelGraph& graph, const cluster::Cluster& cluster,
                 std::int64_t batch) {
  double bytes = 0;
  for (TensorId tensor : graph.tensor_ids()) {
    bytes += static_cast<double>(graph.bytes(tensor, batch));
  }
  VALIDATE(bytes * static_cast<double>(cluster.place_count()) < std::ldexp(1.0, 61),
           "batch {}: the tensors of {} take {:.3g} bytes, too much to plan for {} devices", batch,
           graph.name(), bytes, cluster.device_count());
}

}  // namespace

std::unique_ptr<const Problem> make_problem(std::shared_ptr<const graph::ModelGraph> graph,
                                            std::shared_ptr<const cluster::Cluster> cluster,
                                            const CostModel& model, std::int64_t batch,
                                            const ProblemOptions& options) {
  EXPECT(graph && cluster);
  VALIDATE(options.max_groups >= 1, "max_groups is {}; it must be 1 or more", options.max_groups);
  auto problem = std::make_unique<Problem>();
  problem->costs = analyze(*graph, *cluster, model, batch);
  check_sizes(*graph, *cluster, batch);
  problem->splits = std::make_shared<const graph::SplitAnalysis>(graph::analyze_splits(*graph));
  problem->folded =
      std::make_shared<const graph::FoldedGraph>(graph::fold_aliases(*graph, *problem->splits));
  problem->grouping = graph::group_ops(*graph, problem->costs.mean_seconds(), options.max_groups);
  problem->proportional = proportional_replicas(*cluster, problem->costs);
  problem->batch = batch;
  problem->compression = options.compression;
  problem->graph = std::move(graph);
  problem->cluster = std::move(cluster);
  return problem;
}

}  // namespace heterog::cost
