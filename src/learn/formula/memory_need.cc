// Parameters, gradients, optimizer state and what forward passes keep; workspaces are left out.
#include "learn/formula/memory_need.h"

#include <algorithm>
#include <cmath>

#include "search/pipeline/chain.h"
#include "space/cluster_summary.h"

namespace heterog::learn {

std::vector<double> made_for_later(const cost::Problem& problem) {
  const graph::Grouping& grouping = problem.grouping;
  IdVector<OpId, std::uint32_t> group_of;
  for (const GroupId group : grouping.group_of) group_of.push_back(group.value());
  std::vector<double> made(grouping.count(), 0);
  for (const auto& [producer, tensor] : search::made_for_others(problem, group_of)) {
    made[group_of[producer]] += static_cast<double>(problem.graph->bytes(tensor, problem.batch));
  }
  return made;
}

MemoryNeed memory_need(const space::Summary& summary, const std::vector<double>& made,
                       const std::vector<const std::vector<decide::Replica>*>& replicas,
                       bool sharded) {
  struct Held {
    double state = 0, once = 0;
    double again = 0, largest = 0;  // of later groups, and the greatest that one of them keeps
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
      at.again += share * made[group.value()];
      at.largest = std::max(at.largest, activations);
    }
  }
  MemoryNeed need{.once = -10, .again = -10, .put_off = -10};
  for (DeviceId device : summary.problem.cluster->device_ids()) {
    const Held& at = held[device];
    if (at.state + at.once == 0) continue;
    const double capacity = space::capacity_bytes(summary.problem, device);
    need.once = std::max(need.once, std::log((at.state + at.once) / capacity));
    need.again = std::max(need.again, std::log((at.state + at.again + at.largest) / capacity));
  }
  need.put_off = need.once;
  return need;
}

}  // namespace heterog::learn
