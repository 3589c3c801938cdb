// Costs of collectives between devices, and of sums on one.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "cluster/cluster.h"
#include "cost/collective.h"

namespace heterog::compiler {

// Costs of the collectives of one plan. What a set of devices comes to is worked out once for each
// algorithm; after that a collective of any size over it costs a multiplication for each link.
//
//   CollectiveCosts costs(cluster);
//   const cost::CollectiveCost cost = costs.all_reduce(devices, bytes);
//
// Devices: distinct, ascending, two or more.
class CollectiveCosts {
 public:
  explicit CollectiveCosts(const cluster::Cluster& cluster) : cluster_(cluster) {}
  // By the algorithm that runs for so many devices and bytes (decision 6).
  cost::CollectiveCost all_reduce(const std::vector<DeviceId>& devices, Bytes bytes);
  // The cost of gathering `bytes` in all.
  cost::CollectiveCost all_gather(const std::vector<DeviceId>& devices, Bytes bytes) const;

 private:
  const cluster::Cluster& cluster_;
  // Shapes of each set seen, by algorithm, worked out when first asked for.
  std::map<std::vector<DeviceId>, std::array<std::optional<cost::AllReduceShape>, 3>> shapes_;
};

// To read `operands` tensors of `bytes` and write one, on a device.
Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class);

}  // namespace heterog::compiler
