// Fusion, then devices for the clusters.
#include "search/placement/celeritas.h"

#include <algorithm>
#include <limits>

#include "search/placement/fusion.h"
#include "search/placement/list_placement.h"
#include "search/placement/node_orders.h"

namespace heterog::search {
namespace {

Placement adjusted(const PlacementGraph& coarse, std::vector<Bytes> capacity,
                   const std::vector<NodeId>& order, const Weights& weights) {
  constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
  Estimate estimate(coarse, LinkUse::kFree, std::move(capacity));
  DeviceId last(0);
  for (NodeId node : order) {
    Nanoseconds back = 0;  // to send what it makes to where the others are
    for (Nanoseconds one : weights.output[node]) back = std::max(back, one);
    const auto start = [&](DeviceId device) {
      return estimate.fits(node, device) ? estimate.when(node, device).begin : kNever;
    };
    DeviceId best;
    Nanoseconds earliest = kNever;
    for (DeviceId device : coarse.problem->cluster->device_ids()) {
      const Nanoseconds at = start(device);
      if (at >= earliest) continue;
      earliest = at;
      best = device;
    }
    const Nanoseconds stays = start(last);
    if (!best.valid()) {
      last = estimate.emptiest();
    } else if (stays == kNever || stays - earliest > back) {
      last = best;
    }
    estimate.put(node, last);
  }
  return estimate.placement();
}

}  // namespace

Placement celeritas(const PlacementGraph& graph, const std::vector<Bytes>& capacity,
                    const CeleritasOptions& options) {
  const Weights fine = weights(graph, Of::kMean);
  const std::vector<NodeId> order = critical_first(graph, fine);
  const FusionLimits limits{
      .range = options.range,
      .bytes = static_cast<Bytes>(options.memory_fraction *
                                  static_cast<double>(std::ranges::min(capacity)))};
  const std::vector<std::uint32_t> cluster = fuse(graph, order, fine, limits);
  const PlacementGraph coarse = coarsened(graph, order, cluster);
  const Weights weighed = weights(coarse, Of::kMean);
  const std::vector<NodeId> clusters = critical_first(coarse, weighed);
  const Placement of_cluster = options.adjust ? adjusted(coarse, capacity, clusters, weighed)
                                              : filled(coarse, capacity, clusters).placement();
  // In the order in which the clusters were placed, so that a set follows the first of its nodes.
  IdVector<NodeId, std::size_t> turn(coarse.size());
  for (std::size_t i = 0; i < clusters.size(); ++i) turn[clusters[i]] = i;
  std::vector<std::size_t> positions(order.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = i;
  std::ranges::stable_sort(positions, {}, [&](std::size_t i) { return turn[NodeId(cluster[i])]; });
  Placement placement(graph.size());
  IdVector<SetId, DeviceId> of_set(graph.set_bytes.size());
  for (std::size_t i : positions) {
    DeviceId& held = of_set[graph.set_of[order[i]]];
    if (!held.valid()) held = of_cluster[NodeId(cluster[i])];
    placement[order[i]] = held;
  }
  return placement;
}

void measure_times(PlacementGraph& graph, const std::vector<Bytes>& capacity,
                   oracle::Oracle& trials) {
  const Placement placement = filled(graph, capacity, depth_first(graph)).placement();
  const decide::Strategy strategy = placed(graph, placement, {});
  if (!trials.measure({&strategy, 1}).front().evaluation.feasible) return;
  const cost::Problem& tried = trials.problem();
  for (NodeId node : graph.nodes()) {
    const DeviceTypeId type = tried.cluster->device(placement[node]).type;
    Nanoseconds sum = 0;
    for (OpId op : graph.ops[node]) sum += tried.costs.duration(op, type, tried.batch);
    graph.durations[node.value() * tried.cluster->type_count() + type.value()] = sum;
  }
}

}  // namespace heterog::search
