// Prints how long 8 GPUs take for what they send each other, by kind of link and size, for
// scripts/calibrate/links.py.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cluster/cluster_io.h"
#include "cost/collective.h"

namespace heterog {
namespace {

// Kinds of fabric: 8 GPUs in a machine. Kinds of network card: 4 in each of two.
cluster::Cluster eight(const std::string& name, const cluster::LinkDatabase& links) {
  const bool inside = name.starts_with("pcie") || name.starts_with("nvlink");
  const cluster::LinkKind& fabric = links.at(inside ? name : "pcie3");
  const cluster::LinkKind& card = links.at(name);
  cluster::DeviceType type;
  type.name = "gpu";
  type.memory_bytes = 1;
  type.fp32_flops_per_second = type.memory_bytes_per_second = 1;
  cluster::ClusterBuilder builder(name);
  for (int m = 0; m < (inside ? 1 : 2); ++m) {
    cluster::MachineSpec machine;
    machine.name = std::to_string(m);
    machine.devices.assign(inside ? 8 : 4, type);
    machine.fabric.port_bytes_per_second = fabric.bytes_per_second;
    machine.fabric.latency_seconds = fabric.latency_seconds;
    machine.fabric.launch_seconds = fabric.launch_seconds;
    machine.nic = {card.bytes_per_second, card.latency_seconds, card.launch_seconds};
    builder.add_machine(std::move(machine));
  }
  builder.set_network({3e-6, 0});
  return std::move(builder).build(name);
}

void print(const std::string& name, const char* operation, Bytes bytes, Nanoseconds time) {
  std::printf("%s,%s,%lld,%.9g\n", name.c_str(), operation, static_cast<long long>(bytes),
              to_seconds(time));
}

// The pushes to device 0 follow each other where they share a link, and so do its pulls.
Nanoseconds push_and_pull(const cluster::Cluster& cluster, Bytes bytes) {
  Nanoseconds total = 0;
  for (bool push : {true, false}) {
    IdVector<LinkId, Nanoseconds> free_at(cluster.link_count(), 0);
    Nanoseconds end = 0;
    for (DeviceId other : cluster.device_ids()) {
      if (other == DeviceId(0)) continue;
      const cluster::Route& route =
          push ? cluster.route(other, DeviceId(0)) : cluster.route(DeviceId(0), other);
      Nanoseconds start = 0;
      for (LinkId link : route.links) start = std::max(start, free_at[link]);
      for (LinkId link : route.links) {
        free_at[link] = start + transfer_nanoseconds(bytes, cluster.link(link).bytes_per_second);
      }
      end = std::max(end, start + cost::transfer_duration(cluster, route, bytes));
    }
    total += end;
  }
  return total;
}

void print_curves(const std::string& links_path) {
  using cost::AllReduceAlgorithm;
  const cluster::LinkDatabase links = cluster::read_links(links_path);
  for (const auto& [name, kind] : links) {
    const cluster::Cluster cluster = eight(name, links);
    std::vector<DeviceId> all;
    for (DeviceId device : cluster.device_ids()) all.push_back(device);
    for (Bytes bytes : {1'000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000}) {
      print(name, "One push or pull", bytes,
            cost::transfer_duration(cluster, cluster.route(DeviceId(0), DeviceId(7)), bytes));
      print(name, "All push to one of 8 and pull", bytes, push_and_pull(cluster, bytes));
      print(name, "Ring of 8", bytes,
            cost::all_reduce_cost(cluster, all, bytes, AllReduceAlgorithm::kRing).duration);
      print(name, "Tree over 8", bytes,
            cost::all_reduce_cost(cluster, all, bytes, AllReduceAlgorithm::kTree).duration);
    }
  }
}

}  // namespace
}  // namespace heterog

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: print_link_curves LINKS.json\n");
    return 2;
  }
  try {
    heterog::print_curves(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
