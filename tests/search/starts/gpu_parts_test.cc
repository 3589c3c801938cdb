// Data parallelism on unequal parts of one GPU: shares by speed beat equal ones.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "graph/graph_io.h"
#include "oracle/evaluator.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

// An H100 in parts of so many multiprocessors, which hand tensors over in its memory.
cluster::Cluster parts(const std::vector<int>& multiprocessors) {
  std::string devices;
  for (const int count : multiprocessors) {
    devices += (devices.empty() ? "" : ",") +
               (R"({"model": "H100-SXM5-80GB", "part_of_gpu": {"multiprocessors": )" +
                std::to_string(count) + "}}");
  }
  return cluster::parse_cluster(
      R"({"format": "heterog-cluster", "version": 1, "name": "parts", "machines": [{"name": "box",
          "devices": [)" +
          devices +
          R"(], "fabric": {"kind": "bus", "bandwidth_bytes_per_second": 1.675e12,
                           "latency_seconds": 2e-5}}]})",
      "parts.json", cluster::read_devices("configs/devices.json"));
}

// With equal shares 8 of 128 multiprocessors do a quarter of the batch, by speed a sixteenth: a
// gain of 4, but for what does not grow with a share.
TEST(GpuParts, ProportionalSharesBeatEqualOnes) {
  const auto graph =
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/resnet50.json.gz"));
  const auto steps = [&](const std::vector<int>& multiprocessors) {
    const auto problem =
        cost::make_problem(graph, std::make_shared<const cluster::Cluster>(parts(multiprocessors)),
                           cost::CalibratedModel(), 64);
    oracle::Evaluator evaluator(*problem);
    const auto seconds = [&](const decide::Strategy& strategy) {
      const oracle::Evaluation found = evaluator.evaluate(strategy);
      EXPECT_TRUE(found.feasible);
      return static_cast<double>(found.step) * 1e-9;
    };
    return std::pair{seconds(even_all_reduce(*problem)),
                     seconds(proportional_all_reduce(*problem))};
  };
  const auto [even, proportional] = steps({64, 32, 24, 8});
  EXPECT_GT(even, 2.0 * proportional);
  EXPECT_LT(even, 4.0 * proportional);
  const auto [alike, also_alike] = steps({32, 32, 32, 32});
  EXPECT_DOUBLE_EQ(alike, also_alike);
  EXPECT_NEAR(proportional, alike, 0.5 * alike) << "the same multiprocessors in all";
}

}  // namespace
}  // namespace heterog::search
