// Stoer and Wagner's minimum cut ("A Simple Min-Cut Algorithm", 1997), again and again.
#include "search/pipeline/device_order.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "space/cluster_summary.h"

namespace heterog::search {
namespace {

using Devices = std::vector<DeviceId>;

// One side of a minimum cut between two or more devices. Merges the last two of each maximum
// adjacency order until one vertex is left; the last vertex of each is a cut.
Devices minimum_cut(const cluster::Cluster& cluster, const Devices& devices) {
  std::vector<Devices> merged;
  for (DeviceId device : devices) merged.push_back({device});
  const std::size_t count = devices.size();
  std::vector<std::vector<double>> weight(count, std::vector<double>(count, 0));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      if (i != j) weight[i][j] = 1 / space::seconds_per_byte(cluster, devices[i], devices[j]);
    }
  }
  std::vector<std::size_t> alive(count);
  for (std::size_t i = 0; i < count; ++i) alive[i] = i;
  Devices best;
  double best_weight = std::numeric_limits<double>::infinity();
  while (alive.size() > 1) {
    std::vector<double> joined(count, 0);
    std::vector<std::size_t> rest = alive;
    std::size_t last = rest.front(), before = last;
    while (!rest.empty()) {
      const auto next =
          std::max_element(rest.begin(), rest.end(),
                           [&](std::size_t a, std::size_t b) { return joined[a] < joined[b]; });
      before = last;
      last = *next;
      rest.erase(next);
      for (std::size_t i : rest) joined[i] += weight[i][last] + weight[last][i];
    }
    if (joined[last] < best_weight) {
      best_weight = joined[last];
      best = merged[last];
    }
    std::ranges::copy(merged[last], std::back_inserter(merged[before]));
    for (std::size_t i : alive) {
      weight[before][i] += weight[last][i];
      weight[i][before] += weight[i][last];
    }
    std::erase(alive, last);
  }
  std::ranges::sort(best);
  return best;
}

void append_in_order(const cluster::Cluster& cluster, const Devices& devices, Devices& order) {
  if (devices.size() == 1) {
    order.push_back(devices.front());
    return;
  }
  Devices one = minimum_cut(cluster, devices), other;
  std::ranges::set_difference(devices, one, std::back_inserter(other));
  if (other.front() < one.front()) one.swap(other);
  append_in_order(cluster, one, order);
  append_in_order(cluster, other, order);
}

}  // namespace

std::vector<DeviceId> recursive_device_order(const cluster::Cluster& cluster) {
  Devices devices;
  for (DeviceId device : cluster.device_ids()) devices.push_back(device);
  Devices order;
  append_in_order(cluster, devices, order);
  return order;
}

}  // namespace heterog::search
