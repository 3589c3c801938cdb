// Prints the ops of model graphs that cannot run on slices of the batch, and their share of the
// model's time. Exit code 1 if the share of a model is above the limit.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "graph/graph_io.h"
#include "graph/split.h"

namespace heterog {
namespace {

constexpr double kLimit = 0.01;        // of a model's time
constexpr std::int64_t kSamples = 32;  // the batch whose time is shared out

// The largest share over all types of device of the time that whole ops take.
double whole_share(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits,
                   const cluster::DeviceDatabase& devices) {
  const cost::CalibratedModel model;
  double largest = 0;
  for (const auto& [name, type] : devices) {
    double whole = 0, all = 0;
    for (OpId op : graph.op_ids()) {
      if (graph.op(op).alias) continue;
      const double seconds = model.seconds(graph, op, kSamples, type);
      all += seconds;
      if (!splits.sliceable[op]) whole += seconds;
    }
    largest = std::max(largest, all > 0 ? whole / all : 0);
  }
  return largest;
}

// False if the share is above the limit.
bool report(const std::string& path, const cluster::DeviceDatabase& devices) {
  const graph::ModelGraph graph = graph::read_graph(path);
  const auto start = std::chrono::steady_clock::now();
  const graph::SplitAnalysis splits = graph::analyze_splits(graph);
  const double milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::map<std::pair<std::string, std::string>, int> whole;  // operator, reason → how many
  int count = 0;
  for (OpId op : graph.op_ids()) {
    if (splits.sliceable[op]) continue;
    ++whole[{std::string(graph.type_name(op)), std::string(splits.reason[op])}];
    ++count;
  }
  const double share = whole_share(graph, splits, devices);
  fmt::print("{:<24} {:>6} ops, {:>3} whole, {:.3f}% of the time ({:.1f} ms to analyse)\n",
             graph.name(), graph.op_count(), count, 100 * share, milliseconds);
  for (const auto& [what, times] : whole) {
    fmt::print("    {} × {}: {}\n", times, what.first, what.second);
  }
  return share <= kLimit;
}

}  // namespace
}  // namespace heterog

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: heterog_whole_ops configs/devices.json GRAPH.json.gz …\n");
    return 2;
  }
  try {
    const auto devices = heterog::cluster::read_devices(argv[1]);
    bool good = true;
    for (int i = 2; i < argc; ++i) good &= heterog::report(argv[i], devices);
    return good ? 0 : 1;
  } catch (const heterog::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
