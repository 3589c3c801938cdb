// A cluster of 1,024 devices: many more than a byte can number.
#pragma once

#include <memory>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "graph/graph_io.h"

namespace heterog::support {

inline constexpr std::size_t kWideDevices = 1024;

// 32 machines of 16 V100, 32 of 16 GTX 1080 Ti; the last device is "g-31/gpu15".
inline cluster::Cluster wide_cluster() {
  return cluster::parse_cluster(
      R"({"format": "heterog-cluster", "version": 1, "name": "wide", "machines": [
          {"name": "v", "count": 32, "devices": [{"model": "V100-PCIE-16GB", "count": 16}],
           "fabric": {"kind": "switch", "link": "pcie3"}, "nic": {"link": "100gbe-rdma"}},
          {"name": "g", "count": 32, "devices": [{"model": "GTX-1080-Ti", "count": 16}],
           "fabric": {"kind": "switch", "link": "pcie3"}, "nic": {"link": "50gbe-rdma"}}],
          "network": {"latency_seconds": 3e-6}})",
      "wide cluster", cluster::read_devices("configs/devices.json"),
      cluster::read_links("configs/links.json"));
}

// A tiny graph in few groups on it, with more samples than there are devices.
inline std::unique_ptr<const cost::Problem> wide_problem() {
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/lenet5-tiny.json.gz")),
      std::make_shared<const cluster::Cluster>(wide_cluster()), cost::CalibratedModel(), 2048,
      {.max_groups = 4});
}

}  // namespace heterog::support
