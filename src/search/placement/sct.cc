// The linear program, its rounding, and the schedule.
#include "search/placement/sct.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "search/placement/node_orders.h"

namespace heterog::search {
namespace {

constexpr double kMillisecond = 1e6;  // in ns
constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Child {
  NodeId from, to;
  Nanoseconds takes = 0;  // to send
};

// Each pair of nodes once, by its first node.
std::vector<Child> children_of(const PlacementGraph& graph) {
  const Weights weighed = weights(graph, Of::kMean);
  std::vector<Child> children;
  for (NodeId node : graph.nodes()) {
    const std::size_t begin = children.size();
    const auto edges = graph.outputs[node];
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const auto known =
          std::find_if(children.begin() + static_cast<std::ptrdiff_t>(begin), children.end(),
                       [&](const Child& one) { return one.to == edges[e].node; });
      if (known == children.end()) {
        children.push_back({node, edges[e].node, weighed.output[node][e]});
      } else {
        known->takes += weighed.output[node][e];
      }
    }
  }
  return children;
}

// Columns: starts of the nodes, the end, x of the edges. Rows: an end for each node, an order for
// each edge, and for each node with several children, or several parents, a sum.
LinearProgram program_of(const PlacementGraph& graph, const std::vector<Child>& children) {
  const Weights weighed = weights(graph, Of::kMean);
  const std::size_t nodes = graph.size();
  LinearProgram program;
  const auto add_row = [&](double least) {
    program.row_lower.push_back(least);
    program.row_upper.push_back(kInfinite);
    return static_cast<int>(program.row_lower.size()) - 1;
  };
  const auto time = [](Nanoseconds one) { return static_cast<double>(one) / kMillisecond; };
  IdVector<NodeId, std::vector<std::pair<int, double>>> of_start(nodes);
  std::vector<int> end_rows;
  IdVector<NodeId, std::int64_t> outs(nodes, 0), ins(nodes, 0);
  for (NodeId node : graph.nodes()) end_rows.push_back(add_row(time(weighed.node[node])));
  for (const Child& one : children) {
    const int row = add_row(time(weighed.node[one.from]));
    of_start[one.from].emplace_back(row, -1);
    of_start[one.to].emplace_back(row, 1);
    ++outs[one.from];
    ++ins[one.to];
  }
  IdVector<NodeId, int> out_row(nodes, -1), in_row(nodes, -1);
  for (NodeId node : graph.nodes()) {
    if (outs[node] > 0) out_row[node] = add_row(static_cast<double>(outs[node] - 1));
    if (ins[node] > 0) in_row[node] = add_row(static_cast<double>(ins[node] - 1));
  }
  for (NodeId node : graph.nodes()) {
    program.add_column(0, 0, kInfinite);
    program.add_entry(end_rows[node.value()], -1);
    for (const auto& [row, value] : of_start[node]) program.add_entry(row, value);
  }
  program.add_column(1, 0, kInfinite);
  for (int row : end_rows) program.add_entry(row, 1);
  for (std::size_t i = 0; i < children.size(); ++i) {
    program.add_column(0, 0, 1);
    program.add_entry(static_cast<int>(nodes + i), -time(children[i].takes));
    program.add_entry(out_row[children[i].from], 1);
    program.add_entry(in_row[children[i].to], 1);
  }
  return program;
}

}  // namespace

LinearProgram favourite_program(const PlacementGraph& graph) {
  return program_of(graph, children_of(graph));
}

Favourites favourites(const PlacementGraph& graph, const SctOptions& options) {
  const std::vector<Child> children = children_of(graph);
  Favourites favourite(graph.size());
  if (children.empty()) return favourite;
  const LinearSolution solution =
      solve(program_of(graph, children), static_cast<int>(options.pivots));
  IdVector<NodeId, std::uint8_t> taken(graph.size(), 0);
  for (std::size_t i = 0; i < children.size(); ++i) {
    const Child& one = children[i];
    if (solution.columns[graph.size() + 1 + i] >= options.threshold) continue;
    if (favourite[one.from].valid() || std::exchange(taken[one.to], 1)) continue;
    favourite[one.from] = one.to;
  }
  return favourite;
}

Estimate favourites_first(const PlacementGraph& graph, std::vector<Bytes> capacity,
                          const Favourites& favourite, LinkUse links) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  const Weights weighed = weights(graph, Of::kMean);
  const auto rank = bottom_levels(graph, weighed);
  Estimate estimate(graph, links, std::move(capacity));
  std::vector<NodeId> last(cluster.device_count());
  IdVector<NodeId, std::size_t> missing(graph.size());
  // Of one node on one device: when it may begin, with regard to whom the device waits for.
  const auto begin_of = [&](NodeId node, DeviceId device) {
    const Nanoseconds plain = estimate.when(node, device, true).begin;
    const NodeId before = last[device.value()];
    if (!before.valid()) return plain;
    const NodeId awaited = favourite[before];
    if (!awaited.valid() || awaited == node || estimate.placement()[awaited].valid()) return plain;
    const Nanoseconds free = estimate.interval(before).end;
    if (plain <= free) return plain;  // urgent
    Nanoseconds sent = 0;
    for (Nanoseconds one : weighed.output[before]) sent = std::max(sent, one);
    return std::max(plain, free + sent);
  };
  // Start, favourites first, −rank.
  using Entry = std::tuple<Nanoseconds, int, Nanoseconds, NodeId, DeviceId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;
  const auto enter = [&](NodeId node, DeviceId device) {
    const NodeId before = last[device.value()];
    const int turn = before.valid() && favourite[before] == node ? 0 : 1;
    waiting.emplace(begin_of(node, device), turn, -rank[node], node, device);
  };
  const auto enter_all = [&](NodeId node) {
    const DeviceId held = estimate.held_at(node);
    for (DeviceId device : cluster.device_ids()) {
      if (!held.valid() || held == device) enter(node, device);
    }
  };
  for (NodeId node : graph.nodes()) {
    missing[node] = graph.inputs[node].size();
    if (missing[node] == 0) enter_all(node);
  }
  std::size_t put = 0;
  IdVector<NodeId, std::uint8_t> refused(graph.size(), 0);
  const auto put_at = [&](NodeId node, DeviceId device) {
    estimate.put(node, device, true);
    last[device.value()] = node;
    ++put;
    for (const Edge& edge : graph.outputs[node]) {
      if (--missing[edge.node] == 0) enter_all(edge.node);
    }
  };
  while (put < graph.size()) {
    const auto [start, turn, order, node, device] = waiting.top();
    waiting.pop();
    if (estimate.placement()[node].valid()) continue;
    const DeviceId held = estimate.held_at(node);
    if (held.valid() && held != device) {
      enter(node, held);
      continue;
    }
    if (!held.valid() && !estimate.fits(node, device)) {
      if (++refused[node] == cluster.device_count()) put_at(node, estimate.emptiest());
      continue;
    }
    // A device may wait for somebody else by now.
    if (begin_of(node, device) > start) {
      enter(node, device);
      continue;
    }
    put_at(node, device);
  }
  return estimate;
}

}  // namespace heterog::search
