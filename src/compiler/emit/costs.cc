// Remembers the shapes of collectives by their sets of devices.
#include "compiler/emit/costs.h"

namespace heterog::compiler {

cost::CollectiveCost CollectiveCosts::all_reduce(const std::vector<DeviceId>& devices,
                                                 Bytes bytes) {
  const cost::AllReduceAlgorithm algorithm = cost::all_reduce_algorithm(devices.size(), bytes);
  auto& shape = shapes_[devices][static_cast<std::size_t>(algorithm)];
  if (!shape) shape = cost::all_reduce_shape(cluster_, devices, algorithm);
  return cost::collective_cost(*shape, bytes);
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
