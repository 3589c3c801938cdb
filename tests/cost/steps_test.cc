// How far whole training steps are from measured ones, where the zoo has the network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "base/median.h"
#include "cluster/cluster_io.h"
#include "cost/cost_table.h"
#include "graph/graph_io.h"

namespace heterog::cost {
namespace {

using Row = std::map<std::string, std::string>;

std::vector<Row> read_rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> names;
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    Row row;
    std::size_t i = 0;
    for (std::string cell; std::getline(cells, cell, ','); ++i) {
      if (rows.empty() && names.size() == i) {
        names.push_back(cell);
      } else {
        row[names.at(i)] = cell;
      }
    }
    if (!row.empty()) rows.push_back(row);
  }
  return rows;
}

// Seconds of a step on one device of the type, whose host needs `host_seconds` an operator.
double step_seconds(const graph::ModelGraph& graph, cluster::DeviceType type, std::int64_t batch,
                    double host_seconds, bool updates) {
  cluster::ClusterBuilder builder("one");
  cluster::MachineSpec machine{.name = "one"};
  machine.host_seconds = host_seconds;
  machine.devices.push_back(std::move(type));
  machine.fabric.port_bytes_per_second = 1;
  builder.add_machine(machine);
  const cluster::Cluster one = std::move(builder).build("test");
  const CostTable table = analyze(graph, one, CalibratedModel(), batch);
  double seconds = 0;
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    const bool update = op_work(graph, op, batch).op_class == cluster::OpClass::kOptimizer;
    if (update && !updates) continue;
    seconds += to_seconds(table.duration(op, DeviceTypeId(0), batch));
  }
  return seconds;
}

// All steps, of networks that the zoo lacks and in half precision too, are printed by
// scripts/calibrate/steps.py table, with the errors on steps that the fit has not seen.
TEST(Steps, AreAsLongAsThoseMeasured) {
  const cluster::DeviceDatabase devices = cluster::read_devices("configs/devices.json");
  std::map<std::string, std::unique_ptr<graph::ModelGraph>> graphs;
  std::map<std::string, std::vector<double>> errors;
  for (const char* name : {"model_steps.csv", "model_steps_2.csv"}) {
    const bool first = std::string(name) == "model_steps.csv";
    for (Row& row : read_rows(std::string("configs/calibration/") + name)) {
      const std::string device = row["device"] == "P100" ? "P100-PCIE-16GB" : row["device"];
      // The zoo's graphs run convolutions in TF32 where the card has it. The A100's steps by
      // TensorFlow 1 contradict all others of the chip (scripts/calibrate/steps.py).
      if (row["precision"] == "amp" || device == "A100-SXM4-40GB") continue;
      const std::string& model = row["model"];
      if (model != "resnet50" && model != "resnet152" && model != "vgg19") continue;
      auto& graph = graphs[model];
      if (!graph) {
        graph =
            std::make_unique<graph::ModelGraph>(graph::read_graph("models/" + model + ".json.gz"));
      }
      const double ours = step_seconds(*graph, devices.at(device), std::stoll(row["batch"]),
                                       first ? 5e-5 : 2e-5, !first || row["with_update"] == "True");
      const double error = ours / (1e-3 * std::stod(row["step_ms"])) - 1;
      errors[device].push_back(error);
      errors["all"].push_back(error);
    }
  }
  ASSERT_GE(errors["all"].size(), 35u);
  double sum = 0;
  std::vector<double> sizes;
  for (double error : errors["all"]) {
    sum += error;
    sizes.push_back(std::abs(error));
  }
  EXPECT_NEAR(sum / static_cast<double>(sizes.size()), 0, 0.03);
  EXPECT_LT(median(sizes), 0.06);
  for (const auto& [device, found] : errors) {
    // One step is no median.
    if (found.size() > 1) {
      EXPECT_NEAR(median(found), 0, 0.1) << device;
    }
  }
}

}  // namespace
}  // namespace heterog::cost
