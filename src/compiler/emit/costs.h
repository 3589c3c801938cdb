// Costs of collectives between devices, and of sums on one.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "cluster/cluster.h"
#include "compiler/symmetry.h"
#include "cost/collective.h"

namespace heterog::compiler {

// Costs of the collectives of one plan. What a set of devices comes to is worked out once for each
// algorithm; after that a collective of any size over it costs a multiplication for each link.
//
//   CollectiveCosts costs(cluster);
//   const cost::CollectiveCost cost = costs.all_reduce(devices, bytes);
//
// Devices: distinct, ascending, two or more. With a symmetry they are representatives: the cost is
// that of the collective over all who compute, without its links, which no collective of such a
// plan holds for longer than the devices that take part in all of them.
class CollectiveCosts {
 public:
  CollectiveCosts(const cluster::Cluster& cluster, const Symmetry* symmetry)
      : cluster_(cluster), symmetry_(symmetry) {}
  // By the algorithm that runs for so many devices and bytes (decision 6).
  cost::CollectiveCost all_reduce(const std::vector<DeviceId>& devices, Bytes bytes);
  // The cost of gathering `bytes` in all.
  cost::CollectiveCost all_gather(const std::vector<DeviceId>& devices, Bytes bytes);

 private:
  using Shape = std::optional<cost::AllReduceShape>;
  struct OfSet {
    std::array<Shape, 3> all_reduce;  // by algorithm
    Shape all_gather;
  };
  template <class WorkOut>
  cost::CollectiveCost cost_of(Shape& shape, Bytes bytes, WorkOut work_out) const;

  const cluster::Cluster& cluster_;
  const Symmetry* symmetry_;
  std::map<std::vector<DeviceId>, OfSet> shapes_;  // each worked out when first asked for
};

// To read `operands` tensors of `bytes` and write one, on a device.
Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class);

}  // namespace heterog::compiler
