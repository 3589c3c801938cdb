// Levels by one pass over the nodes, orders by counting what is still waited for.
#include "search/placement/node_orders.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "cost/collective.h"
#include "search/placement/transfer_lines.h"

namespace heterog::search {
namespace {

// Pairs of devices between which every transfer takes equally long, as one of them and their count.
struct Paths {
  const cluster::Route* route = nullptr;
  std::int64_t count = 0;
};

std::vector<Paths> kinds_of_paths(const cluster::Cluster& cluster) {
  constexpr Bytes kFew = 1, kMany = Bytes{1} << 30;
  std::map<std::pair<Nanoseconds, Nanoseconds>, Paths> kinds;
  for (DeviceId from : cluster.device_ids()) {
    for (DeviceId to : cluster.device_ids()) {
      if (from == to) continue;
      const cluster::Route& route = cluster.route(from, to);
      Paths& paths = kinds[{cost::transfer_duration(cluster, route, kFew),
                            cost::transfer_duration(cluster, route, kMany)}];
      paths.route = &route;
      ++paths.count;
    }
  }
  std::vector<Paths> found;
  for (const auto& [times, paths] : kinds) found.push_back(paths);
  return found;
}

// `push` adds what has become ready to the nodes of which `pop` takes the next.
std::vector<NodeId> topological(const PlacementGraph& graph, std::vector<NodeId> sources,
                                const std::function<void(std::vector<NodeId>&)>& sort_children,
                                bool to_the_head) {
  std::deque<NodeId> waiting(sources.begin(), sources.end());
  IdVector<NodeId, std::size_t> missing(graph.size());
  for (NodeId node : graph.nodes()) missing[node] = graph.inputs[node].size();
  std::vector<NodeId> order;
  std::vector<NodeId> children;
  while (!waiting.empty()) {
    const NodeId node = waiting.front();
    waiting.pop_front();
    order.push_back(node);
    children.clear();
    for (const Edge& edge : graph.outputs[node]) {
      if (--missing[edge.node] == 0) children.push_back(edge.node);
    }
    sort_children(children);
    for (NodeId child : children) {
      if (to_the_head) {
        waiting.push_front(child);
      } else {
        waiting.push_back(child);
      }
    }
  }
  return order;
}

std::vector<NodeId> sources_of(const PlacementGraph& graph) {
  std::vector<NodeId> sources;
  for (NodeId node : graph.nodes()) {
    if (graph.inputs[node].empty()) sources.push_back(node);
  }
  return sources;
}

}  // namespace

Weights weights(const PlacementGraph& graph, Of of) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  const std::vector<Paths> kinds = kinds_of_paths(cluster);
  const auto lines = graph.transfers ? graph.transfers->kinds()
                                     : std::vector<std::pair<TransferLine, Nanoseconds>>();
  Weights made;
  for (NodeId node : graph.nodes()) {
    Nanoseconds sum = 0, most = 0;
    for (DeviceId device : cluster.device_ids()) {
      const Nanoseconds one = graph.duration(node, cluster.device(device).type);
      sum += one;
      most = std::max(most, one);
    }
    const auto devices = static_cast<Nanoseconds>(cluster.device_count());
    made.node.push_back(of == Of::kMost ? most : sum / devices);
    for (const Edge& edge : graph.outputs[node]) {
      Nanoseconds total = 0, longest = 0, count = 0;
      for (const auto& [line, pairs] : lines) {
        const Nanoseconds one = line.at(edge.bytes);
        total += pairs * one;
        count += pairs;
        longest = std::max(longest, one);
      }
      for (const Paths& paths : kinds) {
        if (!lines.empty()) break;
        const Nanoseconds one = cost::transfer_duration(cluster, *paths.route, edge.bytes);
        total += paths.count * one;
        count += paths.count;
        longest = std::max(longest, one);
      }
      made.output.push(of == Of::kMost || count == 0 ? longest : total / count);
    }
    made.output.end_row();
  }
  return made;
}

IdVector<NodeId, Nanoseconds> bottom_levels(const PlacementGraph& graph, const Weights& weights) {
  IdVector<NodeId, Nanoseconds> level(graph.size(), 0);
  for (std::size_t i = graph.size(); i-- > 0;) {
    const NodeId node(i);
    const auto edges = graph.outputs[node];
    Nanoseconds longest = 0;
    for (std::size_t e = 0; e < edges.size(); ++e) {
      longest = std::max(longest, weights.output[node][e] + level[edges[e].node]);
    }
    level[node] = weights.node[node] + longest;
  }
  return level;
}

IdVector<NodeId, Nanoseconds> top_levels(const PlacementGraph& graph, const Weights& weights) {
  IdVector<NodeId, Nanoseconds> level(graph.size(), 0);
  for (NodeId node : graph.nodes()) {
    const auto edges = graph.outputs[node];
    for (std::size_t e = 0; e < edges.size(); ++e) {
      Nanoseconds& next = level[edges[e].node];
      next = std::max(next, level[node] + weights.node[node] + weights.output[node][e]);
    }
  }
  return level;
}

Nanoseconds least_step(const PlacementGraph& graph) {
  const auto types = id_range<DeviceTypeId>(graph.problem->cluster->type_count());
  IdVector<NodeId, Nanoseconds> before(graph.size(), 0);
  Nanoseconds longest = 0, all = 0;
  for (NodeId node : graph.nodes()) {
    if (is_update(graph, node)) continue;
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for (DeviceTypeId type : types) least = std::min(least, graph.duration(node, type));
    const Nanoseconds end = before[node] + least;
    for (const Edge& edge : graph.outputs[node]) {
      before[edge.node] = std::max(before[edge.node], end);
    }
    longest = std::max(longest, end);
    all += least;
  }
  const auto devices = static_cast<Nanoseconds>(graph.problem->cluster->device_count());
  return std::max(longest, all / devices);
}

std::vector<NodeId> breadth_first(const PlacementGraph& graph) {
  return topological(
      graph, sources_of(graph), [](std::vector<NodeId>&) {}, false);
}

std::vector<NodeId> depth_first(const PlacementGraph& graph) {
  return topological(
      graph, sources_of(graph),
      [](std::vector<NodeId>& children) { std::ranges::reverse(children); }, true);
}

std::vector<NodeId> critical_first(const PlacementGraph& graph, const Weights& weights) {
  const auto before = top_levels(graph, weights), behind = bottom_levels(graph, weights);
  const auto through = [&](NodeId node) { return before[node] + behind[node]; };
  std::vector<NodeId> sources = sources_of(graph);
  std::ranges::stable_sort(sources, std::ranges::greater{}, through);
  return topological(
      graph, std::move(sources),
      [&](std::vector<NodeId>& children) {
        std::ranges::reverse(children);  // of equal ones the first ends at the head
        std::ranges::stable_sort(children, {}, through);
      },
      true);
}

}  // namespace heterog::search
