// The problems that a config is about, made one at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cluster/cluster_io.h"
#include "cost/problem.h"
#include "graph/known_batches.h"
#include "learn/config.h"

namespace heterog::learn {

// What a random case is about, before its problem is made.
struct DrawnProblem {
  const TrainGraph* entry = nullptr;  // of the config
  std::int64_t batch = 0;
  std::shared_ptr<const cluster::Cluster> cluster;
};

// Reads each graph once. The config has to outlive it.
class ProblemLoader {
 public:
  explicit ProblemLoader(const TrainConfig& config) : config_(config) {}
  std::unique_ptr<const cost::Problem> given(
      const TrainGraph& entry, std::int64_t batch,
      const std::shared_ptr<const cluster::Cluster>& cluster);
  // The random case of this number: a graph, a cluster, and a batch that is one of the config's as
  // if for 8 devices, more or less. Costs and bandwidths differ by config.random_costs.
  DrawnProblem draw(std::int64_t number);
  std::unique_ptr<const cost::Problem> random(const DrawnProblem& drawn, std::int64_t number);
  const graph::ModelGraph& model(const std::string& path) { return *graph_of(path).graph; }
  const graph::KnownBatches& known(const std::string& path) { return graph_of(path).known; }

 private:
  struct Graph {
    std::shared_ptr<const graph::ModelGraph> graph;
    graph::KnownBatches known = {};
  };
  const Graph& graph_of(const std::string& path);

  const TrainConfig& config_;
  std::map<std::string, Graph> graphs_;
  cluster::DeviceDatabase devices_ =
      cluster::read_devices(cluster::installed_config("devices.json"));
  cluster::LinkDatabase links_ = cluster::read_links(cluster::installed_config("links.json"));
};

}  // namespace heterog::learn
