// Prints what the calibrated model says of a graph on each device type: one JSON object, for
// scripts/calibrate/check_costs.py; with --table also how far the cost table is from the formula,
// with --host what a host that needs so many seconds to start an operator makes of it. With --bare
// for kernels alone, whatever a card sustains: what scripts/calibrate/steps.py fits that to. With
// --device for one type alone, which is quicker.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cluster/cluster_io.h"
#include "cost/cost_table.h"
#include "graph/graph_io.h"

namespace heterog {
namespace {

struct Options {
  bool check_table = false, bare = false;
  double host_seconds = 0;
  std::string device;  // empty: all types
};

void print(const std::string& path, const std::string& devices_path, std::int64_t batch,
           const Options& options) {
  const graph::ModelGraph graph = graph::read_graph(path);
  cluster::DeviceDatabase devices = cluster::read_devices(devices_path);
  // A cluster of one device of every type, so that one table has them all.
  cluster::ClusterBuilder builder("all");
  cluster::MachineSpec machine{.name = "all"};
  machine.host_seconds = options.host_seconds;
  for (auto& [name, type] : devices) {
    if (options.bare) type.sustained = {};
    // Of cards that cannot multiply in it the figures mean nothing.
    if (type.bf16_flops_per_second == 0.0) type.bf16_flops_per_second = 1e12;
    if (options.device.empty() || options.device == name) machine.devices.push_back(type);
  }
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
  // How far the table is from the formula half-way between two knots: of a whole step, at worst.
  IdVector<DeviceTypeId, double> off(all.type_count(), 0);
  const std::span<const std::int64_t> knots = table.knots();
  for (std::size_t k = 0; options.check_table && k + 1 < knots.size(); ++k) {
    const std::int64_t samples = (knots[k] + knots[k + 1]) / 2;
    if (samples == knots[k]) continue;
    for (DeviceTypeId type : id_range<DeviceTypeId>(all.type_count())) {
      double asked = 0, looked_up = 0;
      for (OpId op : graph.op_ids()) {
        if (graph.op(op).alias) continue;
        asked += cost::CalibratedModel().seconds(graph, op, samples, all.type(type));
        looked_up += to_seconds(table.duration(op, type, samples));
      }
      off[type] = std::max(off[type], std::abs(looked_up / asked - 1));
    }
  }
  std::printf("{\"flop\": %.6g, \"devices\": {", total);
  for (DeviceTypeId type : id_range<DeviceTypeId>(all.type_count())) {
    double whole = 0;
    for (double value : seconds[type]) whole += value;
    std::printf("%s\"%s\": {\"seconds\": %.6g, \"table_off\": %.3g", type.value() ? ", " : "",
                all.type(type).name.c_str(), whole, off[type]);
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
  heterog::Options options;
  bool known = argc >= 4;
  for (int i = 4; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--table") {
      options.check_table = true;
    } else if (option == "--bare") {
      options.bare = true;
    } else if (option == "--host" && i + 1 < argc) {
      options.host_seconds = std::atof(argv[++i]);
    } else if (option == "--device" && i + 1 < argc) {
      options.device = argv[++i];
    } else {
      known = false;
    }
  }
  if (!known) {
    std::fprintf(stderr,
                 "usage: print_costs GRAPH DEVICES BATCH [--table] [--host SECONDS] [--bare] "
                 "[--device NAME]\n");
    return 2;
  }
  try {
    heterog::print(argv[1], argv[2], std::atoll(argv[3]), options);
  } catch (const heterog::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.kind());
  }
  return 0;
}
