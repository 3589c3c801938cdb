// What collectives between devices, and sums on one, take.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "cost/collective.h"

namespace heterog::compiler {

// Costs of the collectives of one plan. What a set of devices comes to is worked out once; after
// that a collective of any size over it costs an addition per phase.
//
//   CollectiveCosts costs(cluster);
//   const cost::CollectiveCost cost = costs.all_reduce(devices, bytes);
//
// Devices: distinct, ascending, two or more.
class CollectiveCosts {
 public:
  explicit CollectiveCosts(const cluster::Cluster& cluster) : cluster_(cluster) {}
  // The better of ring and hierarchical (decision 6; ties: ring).
  cost::CollectiveCost all_reduce(const std::vector<DeviceId>& devices, Bytes bytes);
  // Of `bytes` in all.
  cost::CollectiveCost all_gather(const std::vector<DeviceId>& devices, Bytes bytes) const;

 private:
  const cluster::Cluster& cluster_;
  // Ring and hierarchical, of each set seen.
  std::map<std::vector<DeviceId>, std::pair<cost::AllReduceShape, cost::AllReduceShape>> shapes_;
};

// To read `operands` tensors of `bytes` and write one, on a device.
Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class);

}  // namespace heterog::compiler
