// Dynamic programming over positions, with what leaves each node beyond the current one.
#include "search/placement/fusion.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace heterog::search {

std::vector<std::uint32_t> fuse(const PlacementGraph& graph, const std::vector<NodeId>& order,
                                const Weights& weights, const FusionLimits& limits) {
  const std::size_t size = order.size();
  IdVector<NodeId, std::size_t> position(graph.size());
  for (std::size_t i = 0; i < size; ++i) position[order[i]] = i;
  // Time of edges that end at each position: from where, and how long.
  std::vector<std::vector<std::pair<std::size_t, Nanoseconds>>> ending(size);
  std::vector<Nanoseconds> leaves(size, 0);  // of each position, to `end` or beyond
  std::vector<Bytes> bytes(size);
  IdVector<SetId, std::uint8_t> counted(graph.set_bytes.size(), 0);
  for (std::size_t i = 0; i < size; ++i) {
    const auto edges = graph.outputs[order[i]];
    for (std::size_t e = 0; e < edges.size(); ++e) {
      EXPECT(position[edges[e].node] > i);
      ending[position[edges[e].node]].emplace_back(i, weights.output[order[i]][e]);
      leaves[i] += weights.output[order[i]][e];
    }
    bytes[i] = graph.kept[order[i]];
    std::uint8_t& of_set = counted[graph.set_of[order[i]]];
    if (of_set == 0) bytes[i] += graph.set_bytes[graph.set_of[order[i]]];
    of_set = 1;
  }
  std::vector<Nanoseconds> least(size + 1, 0);  // of everything before a cut there
  std::vector<std::size_t> before(size + 1, 0);
  for (std::size_t end = 1; end <= size; ++end) {
    for (const auto& [from, time] : ending[end - 1]) leaves[from] -= time;
    least[end] = std::numeric_limits<Nanoseconds>::max();
    Nanoseconds crosses = 0;
    Bytes kept = 0;
    for (std::size_t begin = end; begin-- > 0;) {
      crosses += leaves[begin];
      kept += bytes[begin];
      const bool single = begin + 1 == end;
      const bool too_long = static_cast<std::int64_t>(end - begin) > limits.range;
      if (!single && (too_long || kept > limits.bytes)) break;
      if (least[begin] + crosses > least[end]) continue;
      least[end] = least[begin] + crosses;
      before[end] = begin;
    }
  }
  std::vector<std::size_t> cuts;
  for (std::size_t end = size; end > 0; end = before[end]) cuts.push_back(end);
  std::ranges::reverse(cuts);
  std::vector<std::uint32_t> cluster(size);
  std::size_t begin = 0;
  for (std::uint32_t i = 0; i < cuts.size(); ++i) {
    for (; begin < cuts[i]; ++begin) cluster[begin] = i;
  }
  return cluster;
}

}  // namespace heterog::search
