// Remembers the shapes of collectives by their sets of devices.
#include "compiler/emit/costs.h"

namespace heterog::compiler {

cost::CollectiveCost CollectiveCosts::all_reduce(const std::vector<DeviceId>& devices,
                                                 Bytes bytes) {
  using cost::AllReduceAlgorithm;
  auto [at, is_new] = shapes_.try_emplace(devices);
  if (is_new) {
    at->second = {all_reduce_shape(cluster_, devices, AllReduceAlgorithm::kRing),
                  all_reduce_shape(cluster_, devices, AllReduceAlgorithm::kHierarchical)};
  }
  const auto& [ring, hierarchical] = at->second;
  return cost::collective_cost(
      hierarchical.seconds(bytes) < ring.seconds(bytes) ? hierarchical : ring, bytes);
}

cost::CollectiveCost CollectiveCosts::all_gather(const std::vector<DeviceId>& devices,
                                                 Bytes bytes) const {
  return cost::collective_cost(cost::all_gather_shape(cluster_, devices), bytes);
}

Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class) {
  const double rate = type.memory_bytes_per_second * type.efficiency[static_cast<int>(op_class)];
  return to_nanoseconds(type.launch_seconds + static_cast<double>(bytes) * (operands + 1) / rate);
}

}  // namespace heterog::compiler
