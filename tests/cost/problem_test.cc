// Problems of shipped graphs on shipped clusters.
#include "cost/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cluster/cluster_io.h"
#include "graph/graph_io.h"

namespace heterog::cost {
namespace {

std::unique_ptr<const Problem> problem(const std::string& graph, const std::string& cluster,
                                       std::int64_t batch, const ProblemOptions& options = {}) {
  return make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + graph + ".json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/" + cluster + ".json")),
      CalibratedModel(), batch, options);
}

TEST(Problem, HoldsEverythingForOneGraphClusterAndBatch) {
  const auto p = problem("vgg19-tiny", "heterog-8gpu", 32, {.max_groups = 5});
  EXPECT_EQ(p->batch, 32);
  EXPECT_EQ(p->proportional.size(), p->cluster->device_count());
  EXPECT_EQ(p->grouping.group_of.size(), p->graph->op_count());
  EXPECT_LE(p->grouping.count(), 5u);
  EXPECT_EQ(p->splits->sliceable.size(), p->graph->op_count());
  EXPECT_EQ(p->costs.knots().back(), 32);
  for (OpId op : p->graph->op_ids()) {
    if (p->graph->op(op).alias) continue;
    EXPECT_GT(p->costs.duration(op, DeviceTypeId(0), 32), 0) << p->graph->op(op).name;
  }
}

TEST(Problem, SameInputSameCosts) {
  const auto a = problem("bert_large24-tiny", "heterog-12gpu", 24);
  const auto b = problem("bert_large24-tiny", "heterog-12gpu", 24);
  EXPECT_EQ(a->grouping.group_of, b->grouping.group_of);
  for (OpId op : a->graph->op_ids()) {
    for (std::int64_t samples : {1, 5, 24}) {
      EXPECT_EQ(a->costs.duration(op, DeviceTypeId(1), samples),
                b->costs.duration(op, DeviceTypeId(1), samples));
    }
  }
}

TEST(Problem, MoreSamplesNeverTakeLess) {
  const auto p = problem("resnet50-tiny", "heterog-8gpu", 64);
  for (OpId op : p->graph->op_ids()) {
    for (std::int64_t samples = 2; samples <= 64; ++samples) {
      EXPECT_LE(p->costs.duration(op, DeviceTypeId(0), samples - 1),
                p->costs.duration(op, DeviceTypeId(0), samples))
          << p->graph->op(op).name << " at " << samples;
    }
  }
}

TEST(Problem, RefusesBatchZero) {
  try {
    problem("vgg19-tiny", "heterog-8gpu", 0);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), testing::HasSubstr("batch is 0"));
  }
}

}  // namespace
}  // namespace heterog::cost
