// Summary of a cluster for planners and the network, before anything is simulated: speed, memory
// and wires of each device.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/problem.h"

namespace heterog::space {

struct DeviceSummary {
  double model_seconds = 0;     // the whole model on this device
  double capacity_bytes = 0;    // memory − reserve, at least 1
  double seconds_per_byte = 0;  // to and from another device, mean over these; 0 if there is none
};

struct ClusterSummary {
  IdVector<DeviceId, DeviceSummary> devices;
  // Over the devices.
  double fastest_seconds = 0, slowest_seconds = 0, largest_capacity = 0;
  double mean_seconds_per_byte = 0, mean_latency_seconds = 0;  // over ordered pairs of devices
};

ClusterSummary summarize_cluster(const cost::Problem& problem);

// Memory that is not reserved.
double capacity_bytes(const cost::Problem& problem, DeviceId device);

// Slope of a transfer: links carry it at once, the slowest decides (decision 7).
double seconds_per_byte(const cluster::Cluster& cluster, DeviceId from, DeviceId to);

// Seconds that a device computes when it runs the whole model on some of the samples.
class ModelSeconds {
 public:
  explicit ModelSeconds(const cost::Problem& problem);
  double operator()(DeviceId device, std::int64_t samples) const;

 private:
  IdVector<DeviceId, DeviceTypeId> type_;
  std::vector<std::int64_t> knots_;
  IdVector<DeviceTypeId, std::vector<double>> seconds_;  // at each knot, summed over the ops
};

}  // namespace heterog::space
