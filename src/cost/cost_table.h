// Frozen costs: seconds of every op on every device type as a function of the samples.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cluster/cluster.h"
#include "cost/cost_model.h"
#include "graph/model_graph.h"

namespace heterog::cost {

// Ops that go by as one.
struct MergedOps {
  std::vector<OpId> apart;   // one after the other
  std::vector<OpId> listed;  // in calls that take many: each without its launch
};

// Piecewise linear between knots (ascending sample counts, the last one the batch); below the first
// knot and above the last the nearest segment is extended, never below zero.
class CostTable {
 public:
  // Time of `op` on `samples` ≥ 0 samples; 0 for aliases.
  Nanoseconds duration(OpId op, DeviceTypeId type, std::int64_t samples) const;
  Bytes workspace_bytes(OpId op, DeviceTypeId type, std::int64_t samples) const;
  // Seconds on the whole batch, averaged over the cluster's devices (weights of grouping).
  double mean_seconds(OpId op) const { return mean_seconds_[op.value()]; }
  std::span<const double> mean_seconds() const { return mean_seconds_; }
  // Speed of the whole model on a device type, batches per second: 1 / Σ seconds at the whole
  // batch.
  double model_speed(DeviceTypeId type) const { return model_speed_[type]; }
  std::span<const std::int64_t> knots() const { return knots_; }

 private:
  friend CostTable analyze(const graph::ModelGraph&, const cluster::Cluster&, const CostModel&,
                           std::int64_t);
  friend CostTable scaled(CostTable, const cluster::Cluster&,
                          const std::function<double(OpId, DeviceTypeId)>&);
  friend CostTable merged(const CostTable&, const cluster::Cluster&, std::span<const MergedOps>);
  // Where a sample count falls: between knot and knot + 1, `fraction` of the way.
  struct Place {
    std::uint32_t knot = 0;
    float fraction = 0;
  };
  Place place(std::int64_t samples) const;
  // Raises what the host of a device type is too slow for.
  void charge_host(const graph::ModelGraph& graph, DeviceTypeId type,
                   const cluster::DeviceType& device);
  // Beside each other: whoever asks for one mostly asks for the other next.
  struct Cost {
    float seconds = 0;
    float workspace = 0;  // bytes
  };
  std::size_t index(std::size_t knot, OpId op, DeviceTypeId type) const {
    return knot * row_ + op.value() * types_ + type.value();
  }
  double at(float Cost::*value, OpId op, DeviceTypeId type, std::int64_t samples) const;

  std::size_t types_ = 0;
  std::size_t row_ = 0;  // ops · types
  std::vector<std::int64_t> knots_;
  std::vector<Place> places_;  // [samples], for 0 … batch
  // [knot][op][type]: a compilation goes through the ops in order, most of them on slices of few
  // sizes, and so through memory in order.
  std::vector<Cost> costs_;
  std::vector<double> mean_seconds_;
  IdVector<DeviceTypeId, double> model_speed_;
};

// Asks `model` about every op, device type and knot: every count up to 64, then steps of a
// thirty-second, the slices of even and proportional replication over all devices, and the batch.
// Where a step keeps the device busy for less than its host needs to start the operators, the
// shortest of them are charged the difference. Throws an input error on batch < 1 or above
// graph::kMaxSamples and on costs that are not finite or negative.
CostTable analyze(const graph::ModelGraph& graph, const cluster::Cluster& cluster,
                  const CostModel& model, std::int64_t batch);

// Every op `factor(op, type)` times as long on each type, whatever its samples.
CostTable scaled(CostTable costs, const cluster::Cluster& cluster,
                 const std::function<double(OpId op, DeviceTypeId type)>& factor);

// Op i takes as long as all of `members[i]` together, and as much workspace as the one of them that
// takes most: of a graph whose ops are those of another, merged. mean_seconds() leaves the listed
// ones out.
CostTable merged(const CostTable& costs, const cluster::Cluster& cluster,
                 std::span<const MergedOps> members);

// Replicas a device in proportion to speed (CP): round(speed / slowest speed), at least 1.
std::vector<int> proportional_replicas(const cluster::Cluster& cluster, const CostTable& costs);

}  // namespace heterog::cost
