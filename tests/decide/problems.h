// Problems for tests of the compiler: real small graphs on clusters with round figures.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cluster/builders.h"
#include "cost/problem.h"
#include "graph/graph_io.h"
#include "support/graphs.h"

namespace heterog::decide {

// `machines` machines of one device each: NICs of 1 GB/s, so that a byte takes a nanosecond, and no
// latency. Every op takes 1 µs; a byte that is moved takes `overhead` seconds of both its ends. A
// `cap`, in bytes a second, holds every connection of two machines.
inline std::unique_ptr<const cost::Problem> toy_problem(graph::ModelGraph graph,
                                                        std::size_t machines, std::int64_t batch,
                                                        double overhead = 0, double cap = 0) {
  cluster::ClusterBuilder builder("toy");
  builder.set_network({.flow_cap_bytes_per_second = cap});
  for (std::size_t i = 0; i < machines; ++i) {
    cluster::DeviceType type = cluster::test_type();
    type.memory_bytes = 1 << 30;
    cluster::MachineSpec spec = cluster::test_machine("m" + std::to_string(i), 1, std::move(type));
    spec.nic = {1e9, 0};
    spec.device_overhead_seconds_per_byte = {overhead};
    builder.add_machine(std::move(spec));
  }
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(std::move(graph)),
      std::make_shared<const cluster::Cluster>(std::move(builder).build("toy")),
      cost::ConstantModel(1e-6), batch);
}

inline std::unique_ptr<const cost::Problem> model_problem(const std::string& name,
                                                          std::size_t machines, std::int64_t batch,
                                                          double overhead = 0) {
  return toy_problem(graph::read_graph("models/" + name + ".json.gz"), machines, batch, overhead);
}

// Machines of `devices` devices at 4 GB/s to each other, NICs of 1 GB/s; the host of each serves
// parameters if `serves` says so.
inline std::unique_ptr<const cost::Problem> served_problem(graph::ModelGraph graph,
                                                           std::size_t devices,
                                                           const std::vector<bool>& serves,
                                                           std::int64_t batch) {
  cluster::ClusterBuilder builder("served");
  for (std::size_t i = 0; i < serves.size(); ++i) {
    cluster::DeviceType type = cluster::test_type();
    type.memory_bytes = 1 << 30;
    cluster::MachineSpec spec =
        cluster::test_machine("m" + std::to_string(i), devices, std::move(type));
    spec.fabric = {cluster::FabricSpec::Kind::kSwitch, 4e9};
    spec.nic = {1e9, 0};
    if (serves[i]) spec = cluster::with_server(std::move(spec));
    if (serves[i]) spec.host_memory_bytes = Bytes{1} << 32;
    builder.add_machine(std::move(spec));
  }
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(std::move(graph)),
      std::make_shared<const cluster::Cluster>(std::move(builder).build("served")),
      cost::ConstantModel(1e-6), batch);
}

// The same, with gradients compressed.
inline std::unique_ptr<const cost::Problem> with_compression(const cost::Problem& problem,
                                                             const std::string& text) {
  auto made = std::make_unique<cost::Problem>(problem);
  made->compression = cost::parse_compression(text, "test");
  return made;
}

// Any of them, often none.
inline std::string random_compression(Rng& rng) {
  constexpr std::array kTexts = {"none",
                                 "none",
                                 "fp16",
                                 "bf16",
                                 "fp16,feedback",
                                 "bf16,feedback",
                                 "powersgd:rank=1",
                                 "powersgd:rank=2",
                                 "powersgd:rank=3"};
  return kTexts[rng.below(kTexts.size())];
}

}  // namespace heterog::decide
