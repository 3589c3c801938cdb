// Problems made from the shipped graphs and clusters, for tests of planners.
#pragma once

#include <memory>
#include <string>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "graph/graph_io.h"

namespace heterog::search {

inline std::unique_ptr<const cost::Problem> load_test_problem(const std::string& model,
                                                              const std::string& cluster,
                                                              std::int64_t batch) {
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + model + ".json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/" + cluster + ".json")),
      cost::CalibratedModel(), batch);
}

}  // namespace heterog::search
