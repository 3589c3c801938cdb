// Remembers the shapes of collectives by their sets of devices.
#include "compiler/emit/costs.h"

namespace heterog::compiler {

template <class WorkOut>
cost::CollectiveCost CollectiveCosts::cost_of(Shape& shape, Bytes bytes, WorkOut work_out) const {
  if (!shape) {
    shape = work_out();
    if (symmetry_) shape->seconds_per_byte.clear();
  }
  return cost::collective_cost(*shape, bytes);
}

cost::CollectiveCost CollectiveCosts::all_reduce(const std::vector<DeviceId>& devices,
                                                 Bytes bytes) {
  const std::vector<DeviceId>& members = symmetry_ ? symmetry_->computing : devices;
  const cost::AllReduceAlgorithm algorithm = cost::all_reduce_algorithm(members.size(), bytes);
  return cost_of(shapes_[devices].all_reduce[static_cast<std::size_t>(algorithm)], bytes,
                 [&] { return cost::all_reduce_shape(cluster_, members, algorithm); });
}

cost::CollectiveCost CollectiveCosts::all_gather(const std::vector<DeviceId>& devices,
                                                 Bytes bytes) {
  const std::vector<DeviceId>& members = symmetry_ ? symmetry_->computing : devices;
  return cost_of(shapes_[devices].all_gather, bytes,
                 [&] { return cost::all_gather_shape(cluster_, members); });
}

Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class) {
  const double rate = type.memory_bytes_per_second * type.efficiency[static_cast<int>(op_class)];
  return to_nanoseconds(type.launch_seconds + static_cast<double>(bytes) * (operands + 1) / rate);
}

}  // namespace heterog::compiler
