// Prints what the calibrated model says of a graph on each device type: one JSON object, for
// scripts/check_costs.py.
#include <cstdio>
#include <cstdlib>

#include "cluster/cluster_io.h"
#include "cost/cost_table.h"
#include "graph/graph_io.h"

namespace heterog {
namespace {

void print(const std::string& path, const std::string& devices_path, std::int64_t batch) {
  const graph::ModelGraph graph = graph::read_graph(path);
  const cluster::DeviceDatabase devices = cluster::read_devices(devices_path);
  // A cluster of one device of every type, so that one table has them all.
  cluster::ClusterBuilder builder("all");
  cluster::MachineSpec machine{.name = "all"};
  for (const auto& [name, type] : devices) machine.devices.push_back(type);
  machine.fabric.port_bytes_per_second = 1;
  builder.add_machine(machine);
  const cluster::Cluster all = std::move(builder).build(devices_path);
  const cost::CostTable table = cost::analyze(graph, all, cost::CalibratedModel(), batch);

  std::vector<double> flop(cluster::kOpClassCount, 0);
  IdVector<DeviceTypeId, std::vector<double>> seconds(
      all.type_count(), std::vector<double>(cluster::kOpClassCount, 0));
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    const cost::OpWork work = cost::op_work(graph, op, batch);
    const auto op_class = static_cast<std::size_t>(work.op_class);
    flop[op_class] += work.flop;
    for (DeviceTypeId type : id_range<DeviceTypeId>(all.type_count())) {
      seconds[type][op_class] += to_seconds(table.duration(op, type, batch));
    }
  }
  double total = 0;
  for (double value : flop) total += value;
  std::printf("{\"flop\": %.6g, \"devices\": {", total);
  for (DeviceTypeId type : id_range<DeviceTypeId>(all.type_count())) {
    std::printf("%s\"%s\": {\"seconds\": %.6g", type.value() ? ", " : "",
                all.type(type).name.c_str(), 1 / table.model_speed(type));
    for (int i = 0; i < cluster::kOpClassCount; ++i) {
      const std::string_view name = cluster::op_class_name(static_cast<cluster::OpClass>(i));
      std::printf(", \"%.*s\": %.6g", static_cast<int>(name.size()), name.data(),
                  seconds[type][static_cast<std::size_t>(i)]);
    }
    std::printf("}");
  }
  std::printf("}}\n");
}

}  // namespace
}  // namespace heterog

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: print_costs GRAPH DEVICES BATCH\n");
    return 2;
  }
  try {
    heterog::print(argv[1], argv[2], std::atoll(argv[3]));
  } catch (const heterog::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.kind());
  }
  return 0;
}
