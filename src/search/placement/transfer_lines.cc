// Regression by sums.
#include "search/placement/transfer_lines.h"

#include <algorithm>
#include <cmath>

#include "cost/collective.h"

namespace heterog::search {

Nanoseconds TransferLine::at(Bytes bytes) const {
  return std::max<Nanoseconds>(0, std::llround(fixed + per_byte * static_cast<double>(bytes)));
}

void TransferLines::observe(DeviceId from, DeviceId to, Bytes bytes, Nanoseconds took) {
  Sums& sums = sums_[from.value() * devices_ + to.value()];
  const auto x = static_cast<double>(bytes), y = static_cast<double>(took);
  sums.count += 1;
  sums.x += x;
  sums.y += y;
  sums.xx += x * x;
  sums.xy += x * y;
}

TransferLine TransferLines::line(DeviceId from, DeviceId to) const {
  const Sums& sums = sums_[from.value() * devices_ + to.value()];
  if (sums.count == 0) return {};
  const double spread = sums.xx * sums.count - sums.x * sums.x;
  // Below this the sizes are one, up to rounding.
  if (spread <= 1e-9 * sums.xx * sums.count) return {0, sums.xx > 0 ? sums.xy / sums.xx : 0};
  const double slope = (sums.count * sums.xy - sums.x * sums.y) / spread;
  return {(sums.y - slope * sums.x) / sums.count, slope};
}

std::vector<std::pair<TransferLine, Nanoseconds>> TransferLines::kinds() const {
  std::vector<std::pair<TransferLine, Nanoseconds>> found;
  for (DeviceId from : id_range<DeviceId>(devices_)) {
    for (DeviceId to : id_range<DeviceId>(devices_)) {
      if (from == to) continue;
      const TransferLine one = line(from, to);
      const auto same = std::ranges::find(found, one, [](const auto& kind) { return kind.first; });
      if (same == found.end()) {
        found.emplace_back(one, 1);
      } else {
        ++same->second;
      }
    }
  }
  return found;
}

Nanoseconds transfer_time(const PlacementGraph& graph, DeviceId from, DeviceId to, Bytes bytes) {
  if (graph.transfers) return graph.transfers->line(from, to).at(bytes);
  const cluster::Cluster& cluster = *graph.problem->cluster;
  return cost::transfer_duration(cluster, cluster.route(from, to), bytes);
}

}  // namespace heterog::search
