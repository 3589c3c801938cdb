// Real graphs on clusters of any size, for benchmarks.
#pragma once

#include <memory>
#include <string>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "graph/graph_io.h"

namespace heterog::bench {

inline std::unique_ptr<const cost::Problem> problem(const std::string& model,
                                                    cluster::Cluster cluster, std::int64_t batch) {
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + model + ".json.gz")),
      std::make_shared<const cluster::Cluster>(std::move(cluster)), cost::RooflineModel(), batch);
}

inline cluster::Cluster shipped_cluster(const std::string& name) {
  return cluster::load_cluster("configs/clusters/" + name + ".json");
}

// `devices` (a multiple of 8), eight a machine: machines of V100 and of GTX 1080 Ti in turn, PCIe
// inside, 100 Gb/s between.
inline cluster::Cluster large_cluster(std::size_t devices) {
  const cluster::DeviceDatabase types = cluster::read_devices("configs/devices.json");
  cluster::ClusterBuilder builder("gpus-" + std::to_string(devices));
  for (std::size_t i = 0; i < devices / 8; ++i) {
    cluster::MachineSpec machine;
    machine.name = "m" + std::to_string(i);
    machine.devices.assign(8, types.at(i % 2 == 0 ? "V100-PCIE-16GB" : "GTX-1080-Ti"));
    machine.fabric = {cluster::FabricSpec::Kind::kSwitch, 12.2e9, 0, 5e-6};
    machine.nic = {12.1e9, 5e-6};
    builder.add_machine(std::move(machine));
  }
  return std::move(builder).build("large cluster");
}

}  // namespace heterog::bench
