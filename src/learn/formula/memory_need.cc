// Parameters, gradients, optimizer state and what forward passes keep; workspaces are left out.
#include "learn/formula/memory_need.h"

#include <algorithm>
#include <cmath>

#include "space/cluster_summary.h"

namespace heterog::learn {

MemoryNeed memory_need(const space::Summary& summary, const space::LayoutCosts& costs,
                       const std::vector<const std::vector<decide::Replica>*>& replicas,
                       bool sharded) {
  struct Held {
    double state = 0, once = 0;
    double again = 0, largest = 0;  // what groups read, and the greatest that one of them keeps
  };
  IdVector<DeviceId, Held> held(summary.problem.cluster->device_count());
  for (GroupId group : id_range<GroupId>(replicas.size())) {
    const std::vector<decide::Replica>& own = *replicas[group.value()];
    const space::GroupSummary& info = summary.groups[group];
    double weights = 0;
    for (const decide::Replica& one : own) weights += one.weight;
    const double shards = sharded ? static_cast<double>(own.size()) : 1;
    for (const decide::Replica& one : own) {
      const double share = one.weight / weights;
      const double activations = share * static_cast<double>(info.activation_bytes);
      Held& at = held[one.device];
      at.state += static_cast<double>(2 * info.parameter_bytes) +
                  static_cast<double>(info.optimizer_bytes) / shards;
      at.once += activations;
      at.again += share * costs.crossing[group.value()];
      at.largest = std::max(at.largest, activations);
    }
  }
  MemoryNeed need{.once = -10, .again = -10};
  for (DeviceId device : summary.problem.cluster->device_ids()) {
    const Held& at = held[device];
    if (at.state + at.once == 0) continue;
    const double capacity = space::capacity_bytes(summary.problem, device);
    need.once = std::max(need.once, std::log((at.state + at.once) / capacity));
    need.again = std::max(need.again, std::log((at.state + at.again + at.largest) / capacity));
  }
  return need;
}

}  // namespace heterog::learn
