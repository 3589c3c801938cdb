// The problems that a config is about, made one at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cluster/cluster_io.h"
#include "cost/problem.h"
#include "graph/known_batches.h"
#include "learn/config.h"

namespace heterog::learn {

struct NamedProblem {
  std::string name;  // "vgg19 192 heterog-8gpu"
  std::unique_ptr<const cost::Problem> problem;
};

// Reads each graph once. The config has to outlive it.
class ProblemLoader {
 public:
  explicit ProblemLoader(const TrainConfig& config) : config_(config) {}
  // Nothing if the config leaves the model out.
  std::optional<NamedProblem> given(const TrainGraph& entry, std::int64_t batch,
                                    const std::shared_ptr<const cluster::Cluster>& cluster);
  // The random case of this number: a graph, a cluster, and a batch that is one of the config's as
  // if for 8 devices, more or less.
  std::optional<NamedProblem> random(std::int64_t number);
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
