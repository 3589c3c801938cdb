// The best cuts, beside all cuts.
#include "search/placement/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "search/placement/random_graphs.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

Nanoseconds crossing(const PlacementGraph& graph, const std::vector<NodeId>& order,
                     const Weights& weights, const std::vector<std::uint32_t>& cluster) {
  IdVector<NodeId, std::uint32_t> of(graph.size());
  for (std::size_t i = 0; i < order.size(); ++i) of[order[i]] = cluster[i];
  Nanoseconds sum = 0;
  for (NodeId node : graph.nodes()) {
    const auto edges = graph.outputs[node];
    for (std::size_t e = 0; e < edges.size(); ++e) {
      if (of[edges[e].node] != of[node]) sum += weights.output[node][e];
    }
  }
  return sum;
}

bool within(const PlacementGraph& graph, const std::vector<NodeId>& order,
            const std::vector<std::uint32_t>& cluster, const FusionLimits& limits) {
  std::vector<std::int64_t> nodes(order.size(), 0);
  std::vector<Bytes> bytes(order.size(), 0);
  std::vector<SetId> seen;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const SetId set = graph.set_of[order[i]];
    ++nodes[cluster[i]];
    bytes[cluster[i]] += graph.kept[order[i]];
    if (std::ranges::find(seen, set) == seen.end()) bytes[cluster[i]] += graph.set_bytes[set];
    seen.push_back(set);
  }
  for (std::size_t c = 0; c < order.size(); ++c) {
    if (nodes[c] > 1 && (nodes[c] > limits.range || bytes[c] > limits.bytes)) return false;
  }
  return true;
}

TEST(Fusion, NoOtherCutsCostLess) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-4gpu", 8);
  Rng rng(11);
  for (int round = 0; round < 300; ++round) {
    const std::size_t nodes = 1 + rng.below(10);
    const PlacementGraph graph =
        random_placement_graph(*problem, {.nodes = nodes, .sets = true}, rng);
    const Weights weighed = weights(graph, Of::kMean);
    const std::vector<NodeId> order = critical_first(graph, weighed);
    const FusionLimits limits{.range = 1 + static_cast<std::int64_t>(rng.below(6)),
                              .bytes = static_cast<Bytes>(rng.below(800))};
    const auto found = fuse(graph, order, weighed, limits);
    ASSERT_TRUE(within(graph, order, found, limits));
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for (std::uint32_t cuts = 0; cuts < (1u << (nodes - 1)); ++cuts) {
      std::vector<std::uint32_t> cluster(nodes, 0);
      for (std::size_t i = 1; i < nodes; ++i) cluster[i] = cluster[i - 1] + ((cuts >> (i - 1)) & 1);
      if (!within(graph, order, cluster, limits)) continue;
      least = std::min(least, crossing(graph, order, weighed, cluster));
    }
    ASSERT_EQ(crossing(graph, order, weighed, found), least) << round;
  }
}

// Clusters of neighbours in a topological order make no circle (Celeritas, lemma 2): every edge of
// the coarse graph ascends.
TEST(Fusion, ClustersMakeNoCircle) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-4gpu", 8);
  Rng rng(12);
  for (int round = 0; round < 100'000; ++round) {
    const PlacementGraph graph =
        random_placement_graph(*problem, {.nodes = 1 + rng.below(14), .sets = true}, rng);
    const Weights weighed = weights(graph, Of::kMean);
    const std::vector<NodeId> order =
        rng.below(2) ? critical_first(graph, weighed) : depth_first(graph);
    const PlacementGraph coarse =
        coarsened(graph, order, fuse(graph, order, weighed, {.range = 5, .bytes = 1000}));
    Nanoseconds fine_time = 0, coarse_time = 0;
    Bytes fine_bytes = 0, coarse_bytes = 0;
    for (NodeId node : graph.nodes()) {
      fine_time += graph.duration(node, DeviceTypeId(0));
      fine_bytes += graph.kept[node];
    }
    for (Bytes bytes : graph.set_bytes) fine_bytes += bytes;
    for (NodeId node : coarse.nodes()) {
      coarse_time += coarse.duration(node, DeviceTypeId(0));
      coarse_bytes += coarse.kept[node] + coarse.set_bytes[coarse.set_of[node]];
      for (const Edge& edge : coarse.outputs[node]) ASSERT_LT(node, edge.node);
    }
    ASSERT_EQ(coarse_time, fine_time);
    ASSERT_EQ(coarse_bytes, fine_bytes);
  }
}

}  // namespace
}  // namespace heterog::search
