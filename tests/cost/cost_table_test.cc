// Frozen costs: knots, interpolation, speeds, proportional replicas.
#include "cost/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cluster/builders.h"
#include "support/graphs.h"

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

TEST(CostTable, KnotsAreStepsOfAThirtySecondTheSlicesAndTheBatch) {
  const CostTable table = analyze(chain(), devices(1), PowerModel(), 220);
  std::vector<std::int64_t> knots;
  for (std::int64_t samples = 1; samples <= 64; ++samples) knots.push_back(samples);
  // Three devices: a third of 220 is 73 or 74. Speeds 2 : 2 : 1: 88 and 44, rounded up 89 and 45.
  for (std::int64_t samples :
       {66,  68,  70,  72,  73,  74,  76,  78,  80,  82,  84,  86,  88,  89,  90,  92,
        94,  96,  99,  102, 105, 108, 111, 114, 117, 120, 123, 126, 129, 133, 137, 141,
        145, 149, 153, 157, 161, 166, 171, 176, 181, 186, 191, 196, 202, 208, 214, 220}) {
    knots.push_back(samples);
  }
  EXPECT_THAT(table.knots(), testing::ElementsAreArray(knots));
}

TEST(CostTable, ExactAtKnotsLinearBetween) {
  PowerModel model;
  model.power = 2;  // microseconds: 1, 4, 16, 64, …
  const CostTable table = analyze(chain(), devices(0), model, 128);
  EXPECT_EQ(table.duration(OpId(0), kFast, 1), 1000);
  EXPECT_EQ(table.duration(OpId(0), kFast, 2), 4000);
  EXPECT_EQ(table.duration(OpId(0), kFast, 8), 64000);
  EXPECT_NEAR(table.duration(OpId(0), kFast, 63), 3969000, 200);
  // Between 66 (4356 us) and 68 (4624 us): 4490 us. Between 96 (9216) and 99 (9801): 9216 + 195.
  EXPECT_NEAR(table.duration(OpId(0), kFast, 67), 4490000, 400);
  EXPECT_NEAR(table.duration(OpId(0), kFast, 97), 9411000, 800);
  // Below the first knot the first segment goes on, never below zero: 1 − 3 < 0.
  EXPECT_EQ(table.duration(OpId(0), kFast, 0), 0);
  // Above the last one the last segment, from 126 (15876) to 128 (16384): 16384 + 254.
  EXPECT_NEAR(table.duration(OpId(0), kFast, 129), 16638000, 1500);
  EXPECT_EQ(table.workspace_bytes(OpId(0), kFast, 3), 300);
}

// A host of 10 us for a chain whose first operator takes as long as the samples say, its second a
// tenth of that.
TEST(CostTable, AStepTakesAtLeastWhatTheHostNeeds) {
  struct Model final : CostModel {
    double seconds(const ModelGraph& graph, OpId op, std::int64_t samples,
                   const DeviceType&) const override {
      return (graph.op(op).name == "first" ? 1e-6 : 1e-7) * static_cast<double>(samples);
    }
    Bytes workspace_bytes(const ModelGraph&, OpId, std::int64_t, const DeviceType&) const override {
      return 0;
    }
  };
  cluster::ClusterBuilder builder("test");
  cluster::MachineSpec machine = cluster::test_machine("m", 1);
  machine.host_seconds = 10e-6;
  builder.add_machine(machine);
  const Cluster cluster = std::move(builder).build("test");
  const CostTable table = analyze(chain(), cluster, Model(), 16);
  const auto seconds = [&](int op, std::int64_t samples) {
    return table.duration(OpId(op), kFast, samples);
  };
  // 8 us and 0.8 us: the host needs 20 us, half for each.
  EXPECT_NEAR(seconds(0, 8), 10000, 1);
  EXPECT_NEAR(seconds(2, 8), 10000, 1);
  // 16 us and 1.6 us: the long one hides the start of the short one but for 4 us.
  EXPECT_NEAR(seconds(0, 16), 16000, 1);
  EXPECT_NEAR(seconds(2, 16), 4000, 1);
  EXPECT_EQ(seconds(1, 16), 0);
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

// Hosts that serve run updates alone: nothing else is asked about them, and nobody's proportions
// and means know of them.
TEST(CostTable, HostsThatServeCostUpdatesAlone) {
  const ModelGraph graph = support::tiny_mlp_graph();
  OpId forward, update;
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    (graph.op(op).phase == graph::Phase::kUpdate ? update : forward) = op;
  }
  cluster::ClusterBuilder builder("served");
  builder.add_machine(cluster::with_server(cluster::test_machine("a", 2)));
  const Cluster served = std::move(builder).build("served");
  const CostTable table = analyze(graph, served, ConstantModel(1e-6), 8);
  const DeviceTypeId host = served.device(served.machine(MachineId(0)).host).type;
  EXPECT_EQ(table.duration(update, host, 8), 1000);
  EXPECT_EQ(table.duration(forward, host, 8), 0);
  EXPECT_EQ(table.duration(forward, DeviceTypeId(0), 8), 1000);
  EXPECT_DOUBLE_EQ(table.mean_seconds(forward), 1e-6);
  EXPECT_THAT(proportional_replicas(served, table), ElementsAre(1, 1));
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

// x · y in bfloat16.
ModelGraph bfloat16_product() {
  GraphBuilder builder("product");
  const auto tensor = [&](const char* name, TensorRole role, graph::Affine rows) {
    return builder.add_tensor({.name = name,
                               .role = role,
                               .dtype = graph::DType::kBFloat16,
                               .shape = {rows, {0, 4}}});
  };
  const TensorId x = tensor("x", TensorRole::kInput, {1, 0});
  const TensorId y = tensor("y", TensorRole::kParameter, {0, 4});
  const TensorId z = tensor("z", TensorRole::kActivation, {1, 0});
  builder.add_op({.name = "product",
                  .type = "aten.mm.default",
                  .args = {tensor_value(x), tensor_value(y)},
                  .outputs = {z}});
  return std::move(builder).build("product");
}

TEST(CostTable, RefusesBfloat16OnCardsThatCannotMultiplyInIt) {
  DeviceType old = cluster::test_type("old");
  cluster::ClusterBuilder builder("test");
  old.bf16_flops_per_second = 0;
  builder.add_machine(cluster::test_machine("f", 1));
  builder.add_machine(cluster::test_machine("o", 1, old));
  const Cluster cluster = std::move(builder).build("test");
  try {
    analyze(bfloat16_product(), cluster, RooflineModel(), 8);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_STREQ(error.what(),
                 "op 'product' multiplies in bfloat16, which old cannot; export the model in "
                 "float16, or leave these devices out of the cluster");
  }
  EXPECT_NO_THROW(analyze(chain(), cluster, RooflineModel(), 8));
  EXPECT_NO_THROW(analyze(bfloat16_product(), devices(1), RooflineModel(), 8));
}

}  // namespace
}  // namespace heterog::cost
