// Problems of shipped graphs on shipped clusters, for tests of learning.
#pragma once

#include <memory>
#include <string>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "graph/graph_io.h"

namespace heterog {

inline std::unique_ptr<const cost::Problem> test_problem(const std::string& graph,
                                                         const std::string& cluster,
                                                         std::int64_t batch, int max_groups) {
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + graph + ".json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/" + cluster + ".json")),
      cost::CalibratedModel(), batch, {.max_groups = max_groups});
}

}  // namespace heterog
