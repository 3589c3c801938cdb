// Random placement graphs on a real cluster, for tests.
#pragma once

#include <utility>
#include <vector>

#include "base/rng.h"
#include "search/placement/placement_graph.h"

namespace heterog::search {

struct RandomShape {
  std::size_t nodes = 8;
  Nanoseconds longest = 20'000;  // of a node
  Bytes most = 1 << 20;          // of an edge
  bool sets = false;             // some nodes share a set
};

// Nodes take equally long on every type of device.
inline PlacementGraph random_placement_graph(const cost::Problem& problem, const RandomShape& shape,
                                             Rng& rng) {
  PlacementGraph graph;
  graph.problem = &problem;
  const std::size_t types = problem.cluster->type_count();
  std::vector<std::pair<NodeId, Edge>> inputs, outputs;
  for (std::size_t i = 0; i < shape.nodes; ++i) {
    graph.ops.push_back({OpId(i)});
    graph.kept.push_back(static_cast<Bytes>(rng.below(100)));
    const bool joins = shape.sets && i > 0 && rng.below(4) == 0;
    graph.set_of.push_back(joins ? graph.set_of[NodeId(rng.below(i))]
                                 : graph.set_bytes.push_back(static_cast<Bytes>(rng.below(100))));
    const auto time =
        static_cast<Nanoseconds>(rng.below(static_cast<std::uint64_t>(shape.longest)));
    graph.durations.insert(graph.durations.end(), types, time);
    for (std::size_t from = 0; from < i; ++from) {
      if (rng.below(3) != 0) continue;
      const auto bytes = static_cast<Bytes>(1 + rng.below(static_cast<std::uint64_t>(shape.most)));
      const Edge edge{NodeId(from), ValueId(graph.value_count++), bytes};
      inputs.emplace_back(NodeId(i), edge);
      outputs.emplace_back(NodeId(from), Edge{NodeId(i), edge.value, bytes});
    }
  }
  graph.inputs = Csr<NodeId, Edge>::from_pairs(graph.size(), inputs);
  graph.outputs = Csr<NodeId, Edge>::from_pairs(graph.size(), outputs);
  return graph;
}

}  // namespace heterog::search
