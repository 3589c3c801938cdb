// Sums over the cost table and the routes of a cluster.
#include "space/cluster_summary.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace heterog::space {

double seconds_per_byte(const cluster::Cluster& cluster, DeviceId from, DeviceId to) {
  const cluster::Route& route = cluster.route(from, to);
  double bandwidth = std::numeric_limits<double>::infinity();
  for (LinkId link : route.links) {
    bandwidth = std::min(bandwidth, cluster.link(link).bytes_per_second);
  }
  for (double cap :
       {cluster::flow_cap(route, cluster::kFlowBytes + 1), route.device_bytes_per_second}) {
    if (cap > 0) bandwidth = std::min(bandwidth, cap);
  }
  return 1.0 / bandwidth;
}

double capacity_bytes(const cost::Problem& problem, DeviceId device) {
  const double capacity = static_cast<double>(problem.cluster->device(device).memory_bytes) -
                          static_cast<double>(problem.cluster->type_of(device).reserve_bytes);
  return std::max(capacity, 1.0);
}

ClusterSummary summarize_cluster(const cost::Problem& problem) {
  const cluster::Cluster& cluster = *problem.cluster;
  const auto count = static_cast<double>(cluster.device_count());
  ClusterSummary summary;
  const std::size_t devices = cluster.device_count();
  std::vector<double> slope(devices * devices, 0);  // row: from
  for (DeviceId d : cluster.device_ids()) {
    for (DeviceId e : cluster.device_ids()) {
      if (d != e) slope[d.value() * devices + e.value()] = seconds_per_byte(cluster, d, e);
    }
  }
  for (DeviceId d : cluster.device_ids()) {
    double sum = 0;
    for (DeviceId e : cluster.device_ids()) {
      if (d == e) continue;
      // Both directions, so that a device with a slow uplink shows it.
      sum += (slope[d.value() * devices + e.value()] + slope[e.value() * devices + d.value()]) / 2;
      summary.mean_latency_seconds += to_seconds(cluster.route(d, e).latency);
    }
    const DeviceSummary device{
        .model_seconds = 1.0 / problem.costs.model_speed(cluster.device(d).type),
        .capacity_bytes = capacity_bytes(problem, d),
        .seconds_per_byte = count > 1 ? sum / (count - 1) : 0.0};
    summary.mean_seconds_per_byte += device.seconds_per_byte / count;
    summary.devices.push_back(device);
  }
  if (count > 1) summary.mean_latency_seconds /= count * (count - 1);
  summary.fastest_seconds = summary.slowest_seconds = summary.devices[DeviceId(0)].model_seconds;
  for (const DeviceSummary& device : summary.devices) {
    summary.fastest_seconds = std::min(summary.fastest_seconds, device.model_seconds);
    summary.slowest_seconds = std::max(summary.slowest_seconds, device.model_seconds);
    summary.largest_capacity = std::max(summary.largest_capacity, device.capacity_bytes);
  }
  return summary;
}

ModelSeconds::ModelSeconds(const cost::Problem& problem)
    : knots_(problem.costs.knots().begin(), problem.costs.knots().end()) {
  const cluster::Cluster& cluster = *problem.cluster;
  for (DeviceId device : cluster.device_ids()) type_.push_back(cluster.device(device).type);
  seconds_.resize(cluster.type_count());
  for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) {
    for (std::int64_t knot : knots_) {
      double sum = 0;
      for (OpId op : problem.graph->op_ids()) {
        sum += to_seconds(problem.costs.duration(op, type, knot));
      }
      seconds_[type].push_back(sum);
    }
  }
}

double ModelSeconds::operator()(DeviceId device, std::int64_t samples) const {
  if (samples <= 0) return 0;  // it takes no part
  const std::vector<double>& at = seconds_[type_[device]];
  if (knots_.size() == 1) return at[0];
  const auto above = std::upper_bound(knots_.begin(), knots_.end(), samples);
  const auto last = static_cast<std::ptrdiff_t>(knots_.size()) - 1;
  const std::ptrdiff_t right = std::clamp<std::ptrdiff_t>(above - knots_.begin(), 1, last);
  const auto i = static_cast<std::size_t>(right);
  const double part =
      static_cast<double>(samples - knots_[i - 1]) / static_cast<double>(knots_[i] - knots_[i - 1]);
  return at[i - 1] + part * (at[i] - at[i - 1]);
}

}  // namespace heterog::space
