// Running sums, as shares of their total.
#include "space/spans.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace heterog::space {

namespace {

template <class Items, class SizeOf>
std::vector<Span> spans(const Items& items, SizeOf size_of) {
  std::vector<double> sizes;
  for (const auto& item : items) sizes.push_back(size_of(item));
  const double total = std::max(std::accumulate(sizes.begin(), sizes.end(), 0.0), 1e-30);
  std::vector<Span> result;
  double at = 0;
  for (double size : sizes) {
    result.push_back({at / total, (at + size) / total});
    at += size;
  }
  return result;
}

}  // namespace

Spans lay_end_to_end(const GroupSummaries& groups, const ClusterSummary& cluster) {
  const auto memory = [](const GroupSummary& group) {
    return static_cast<double>(group.state_bytes() + group.activation_bytes);
  };
  const auto capacity = [](const DeviceSummary& device) { return device.capacity_bytes; };
  return {.group_memory = IdVector<GroupId, Span>(spans(groups, memory)),
          .group_time = IdVector<GroupId, Span>(
              spans(groups, [](const GroupSummary& group) { return group.seconds; })),
          .device_memory = IdVector<DeviceId, Span>(spans(cluster.devices, capacity)),
          .device_speed =
              IdVector<DeviceId, Span>(spans(cluster.devices, [](const DeviceSummary& device) {
                return 1.0 / device.model_seconds;
              }))};
}

}  // namespace heterog::space
