// Prints what Celeritas' Tables 2 and 5 are made of, one line of JSON a case: nodes, communication
// over computation (eq. 1) before and after the fusion, and how far times and memory that were
// extrapolated from small batches are from those of the batch.
// scripts/reproduce/celeritas_tables.py reads it.
//
//     build/release/bin/fusion_facts GRAPH_FILE CLUSTER_FILE BATCH
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "cost/profile.h"
#include "graph/graph_io.h"
#include "search/placement/fusion.h"
#include "search/placement/node_orders.h"

namespace heterog::bench {
namespace {

using search::PlacementGraph;

// The batches that a line goes through, as parts of the large one.
constexpr std::array<std::int64_t, 3> kParts = {16, 8, 4};

// Eq. 1: what all edges take over what all nodes take.
double communication_over_computation(const PlacementGraph& graph, const search::Weights& weights) {
  double nodes = 0, edges = 0;
  for (search::NodeId node : graph.nodes()) {
    nodes += static_cast<double>(weights.node[node]);
    for (Nanoseconds edge : weights.output[node]) edges += static_cast<double>(edge);
  }
  return edges / nodes;
}

// The mean over nodes, where the batch's own is not zero, of |extrapolated / own − 1|: the line is
// that of profiles, `of` gives a time or bytes.
template <class Of>
double deviation(const std::vector<PlacementGraph>& small, const PlacementGraph& whole, Of of) {
  const std::int64_t batch = whole.problem->batch;
  double sum = 0, count = 0;
  for (search::NodeId node : whole.nodes()) {
    const double own = of(whole, node);
    if (own == 0) continue;
    std::vector<cost::Measurement> measured;
    for (const PlacementGraph& graph : small) {
      measured.push_back({graph.problem->batch, of(graph, node)});
    }
    sum += std::abs(cost::fit_line(measured).at(batch) / own - 1);
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

void print(const std::string& graph_file, const std::string& cluster_file, std::int64_t batch) {
  VALIDATE(batch % kParts.front() == 0, "batch {}: expected a multiple of {}", batch,
           kParts.front());
  const auto model = std::make_shared<const graph::ModelGraph>(graph::read_graph(graph_file));
  const auto cluster =
      std::make_shared<const cluster::Cluster>(cluster::load_cluster(cluster_file));
  std::vector<std::unique_ptr<const cost::Problem>> problems;
  const auto placed_on = [&](std::int64_t samples) {
    problems.push_back(cost::make_problem(model, cluster, cost::CalibratedModel(), samples));
    return search::make_placement_graph(*problems.back(), search::Backward::kWithForward);
  };
  const PlacementGraph whole = placed_on(batch);
  std::vector<PlacementGraph> small;
  for (std::int64_t part : kParts) small.push_back(placed_on(batch / part));

  // As search::celeritas does with its defaults.
  const search::Weights fine = search::weights(whole, search::Of::kMean);
  const std::vector<search::NodeId> order = search::critical_first(whole, fine);
  Bytes least = cluster->device(DeviceId(0)).memory_bytes;
  for (DeviceId device : cluster->device_ids()) {
    least = std::min(least, cluster->device(device).memory_bytes);
  }
  const search::FusionLimits limits{.bytes = least / 4};
  const std::vector<std::uint32_t> clusters = search::fuse(whole, order, fine, limits);
  const PlacementGraph coarse = search::coarsened(whole, order, clusters);

  const DeviceTypeId type = cluster->device(DeviceId(0)).type;
  const double time =
      deviation(small, whole, [&](const PlacementGraph& graph, search::NodeId node) {
        return static_cast<double>(graph.duration(node, type));
      });
  const double memory =
      deviation(small, whole, [](const PlacementGraph& graph, search::NodeId node) {
        return static_cast<double>(graph.kept[node]);
      });
  fmt::print(R"({{"nodes": {}, "ratio": {}, "clusters": {}, "ratio_of_clusters": {}, )"
             R"("time_deviation": {}, "memory_deviation": {}}})"
             "\n",
             whole.size(), communication_over_computation(whole, fine), coarse.size(),
             communication_over_computation(coarse, search::weights(coarse, search::Of::kMean)),
             time, memory);
}

int run(const std::vector<std::string>& words) {
  try {
    VALIDATE(words.size() == 3, "expected GRAPH_FILE CLUSTER_FILE BATCH");
    std::int64_t batch = 0;
    const char* end = words[2].data() + words[2].size();
    VALIDATE(std::from_chars(words[2].data(), end, batch).ptr == end && batch > 0,
             "batch '{}': expected a number of samples", words[2]);
    print(words[0], words[1], batch);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "fusion_facts: {}\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace heterog::bench

int main(int argc, char** argv) {
  return heterog::bench::run(std::vector<std::string>(argv + 1, argv + argc));
}
