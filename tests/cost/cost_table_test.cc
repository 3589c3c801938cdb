// Frozen costs: knots, interpolation, speeds, proportional replicas.
#include "cost/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cluster/builders.h"

namespace heterog::cost {
namespace {

using cluster::Cluster;
using cluster::DeviceType;
using graph::GraphBuilder;
using graph::ModelGraph;
using graph::tensor_value;
using graph::TensorRole;
using testing::ElementsAre;

// x → relu → view (an alias) → relu.
ModelGraph chain() {
  GraphBuilder builder("chain");
  const auto tensor = [&](const char* name, TensorRole role) {
    return builder.add_tensor({.name = name, .role = role, .shape = {{1, 0}, {0, 4}}});
  };
  const TensorId x = tensor("x", TensorRole::kInput);
  const TensorId a = tensor("a", TensorRole::kActivation);
  const TensorId b = tensor("b", TensorRole::kActivation);
  const TensorId c = tensor("c", TensorRole::kActivation);
  builder.add_op(
      {.name = "first", .type = "aten.relu.default", .args = {tensor_value(x)}, .outputs = {a}});
  builder.add_op(
      {.name = "alias",
       .type = "aten.view.default",
       .args = {tensor_value(a), graph::list_value({graph::size_value(1, 0), graph::int_value(4)})},
       .outputs = {b}});
  builder.add_op(
      {.name = "second", .type = "aten.relu.default", .args = {tensor_value(b)}, .outputs = {c}});
  return std::move(builder).build("chain");
}

// Two fast devices in one machine, `slow` slow ones in another.
Cluster devices(std::size_t slow) {
  cluster::ClusterBuilder builder("test");
  builder.add_machine(cluster::test_machine("f", 2));
  if (slow) builder.add_machine(cluster::test_machine("s", slow, cluster::test_type("slow")));
  return std::move(builder).build("test");
}

// `base` + `each` · samples^power, times `slowdown` on the type named "slow".
struct PowerModel final : CostModel {
  double base = 0, each = 1e-6, power = 1, slowdown = 2;
  double seconds(const ModelGraph&, OpId, std::int64_t samples,
                 const DeviceType& type) const override {
    const double fast = base + each * std::pow(static_cast<double>(samples), power);
    return type.name == "slow" ? slowdown * fast : fast;
  }
  Bytes workspace_bytes(const ModelGraph&, OpId, std::int64_t samples,
                        const DeviceType&) const override {
    return 100 * samples;
  }
};

const DeviceTypeId kFast(0), kSlow(1);

TEST(CostTable, KnotsAreThePowersOfTwoTheSlicesAndTheBatch) {
  const CostTable table = analyze(chain(), devices(1), PowerModel(), 100);
  // Three devices: a third of 100 is 33 or 34. Speeds 2 : 2 : 1: 40 and 20, rounded up 41 and 21.
  EXPECT_THAT(table.knots(), ElementsAre(1, 2, 4, 8, 16, 20, 21, 32, 33, 34, 40, 41, 64, 100));
}

TEST(CostTable, ExactAtKnotsLinearBetween) {
  PowerModel model;
  model.power = 2;  // microseconds: 1, 4, 16, 64, …
  const CostTable table = analyze(chain(), devices(0), model, 8);
  EXPECT_THAT(table.knots(), ElementsAre(1, 2, 4, 5, 8));  // half of 8 is 4, or 5 if rounded up
  EXPECT_EQ(table.duration(OpId(0), kFast, 1), 1000);
  EXPECT_EQ(table.duration(OpId(0), kFast, 2), 4000);
  EXPECT_EQ(table.duration(OpId(0), kFast, 8), 64000);
  // Between 2 (4 us) and 4 (16 us): 10 us. Between 5 (25) and 8 (64): 25 + 13.
  EXPECT_EQ(table.duration(OpId(0), kFast, 3), 10000);
  EXPECT_NEAR(table.duration(OpId(0), kFast, 6), 38000, 2);
  // Below the first knot the first segment goes on, never below zero: 1 − 3 < 0.
  EXPECT_EQ(table.duration(OpId(0), kFast, 0), 0);
  // Above the last one the last segment: 64 + 13.
  EXPECT_NEAR(table.duration(OpId(0), kFast, 9), 77000, 5);
  EXPECT_EQ(table.workspace_bytes(OpId(0), kFast, 3), 300);
}

TEST(CostTable, AliasesAreFree) {
  const CostTable table = analyze(chain(), devices(1), PowerModel(), 4);
  EXPECT_EQ(table.duration(OpId(1), kFast, 4), 0);
  EXPECT_EQ(table.workspace_bytes(OpId(1), kFast, 4), 0);
  EXPECT_EQ(table.mean_seconds(OpId(1)), 0);
  EXPECT_GT(table.mean_seconds(OpId(0)), 0);
}

TEST(CostTable, MeansAreOverDevicesAndSpeedsOfTheWholeModel) {
  const CostTable table = analyze(chain(), devices(1), PowerModel(), 10);
  // Fast 10 us, twice; slow 20 us, once.
  EXPECT_DOUBLE_EQ(table.mean_seconds(OpId(0)), 40e-6 / 3);
  // Two ops that cost: 20 us and 40 us.
  EXPECT_DOUBLE_EQ(table.model_speed(kFast), 1 / 20e-6);
  EXPECT_DOUBLE_EQ(table.model_speed(kSlow), 1 / 40e-6);
}

TEST(CostTable, ABatchOfOneHasOneKnot) {
  const CostTable table = analyze(chain(), devices(1), PowerModel(), 1);
  EXPECT_THAT(table.knots(), ElementsAre(1));
  EXPECT_EQ(table.duration(OpId(0), kFast, 1), 1000);
  EXPECT_EQ(table.duration(OpId(0), kFast, 2), 1000);
}

TEST(CostTable, ProportionalReplicasRoundTheRatioOfSpeeds) {
  const auto replicas = [](double slowdown) {
    PowerModel model;
    model.slowdown = slowdown;
    const Cluster cluster = devices(2);
    return proportional_replicas(cluster, analyze(chain(), cluster, model, 16));
  };
  EXPECT_THAT(replicas(2), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(replicas(1.4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(replicas(1.6), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(replicas(0.3), ElementsAre(1, 1, 3, 3));  // "slow" is 3.3 times as fast
}

TEST(CostTable, RefusesBadBatchesAndBadModels) {
  const ModelGraph graph = chain();
  const Cluster cluster = devices(0);
  EXPECT_THROW(analyze(graph, cluster, PowerModel(), 0), Error);
  EXPECT_THROW(analyze(graph, cluster, PowerModel(), -4), Error);
  try {
    analyze(graph, cluster, PowerModel(), graph::kMaxSamples + 1);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
  }
  EXPECT_THROW(analyze(graph, cluster, ConstantModel(-1), 1), Error);
  EXPECT_THROW(analyze(graph, cluster, ConstantModel(std::numeric_limits<double>::infinity()), 1),
               Error);
  EXPECT_THROW(analyze(graph, cluster, ConstantModel(std::numeric_limits<double>::quiet_NaN()), 1),
               Error);
}

TEST(CostTable, NothingCostsNothing) {
  const Cluster cluster = devices(1);
  const CostTable table = analyze(chain(), cluster, ConstantModel(0), 4);
  EXPECT_EQ(table.duration(OpId(0), kFast, 4), 0);
  EXPECT_THAT(proportional_replicas(cluster, table), ElementsAre(1, 1, 1));
}

}  // namespace
}  // namespace heterog::cost
