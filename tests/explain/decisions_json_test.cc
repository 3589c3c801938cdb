// Decisions with what they hold for: every operator once, every parameter once.
#include "explain/decisions_json.h"

#include <gtest/gtest.h>

#include "explain/plans.h"

namespace heterog::explain {
namespace {

using decide::SyncMethod;

TEST(DecisionsJson, CountsEveryOperatorAndParameterOnce) {
  const auto problem = decide::model_problem("lenet5-tiny", 3, 12);
  const graph::ModelGraph& graph = *problem->graph;
  decide::Strategy strategy = even_strategy(*problem, SyncMethod::kParameterServer);
  const auto group = problem->grouping.group_of[OpId(0)];
  strategy.units[UnitId(group.value())] = decide::single_decision(DeviceId(1));

  std::int64_t alone = 0, all = 0;
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    ++all;
    if (problem->grouping.group_of[op] == group) ++alone;
  }
  Bytes bytes = 0;
  for (TensorId parameter : graph.parameters()) bytes += graph.bytes(parameter, 1);

  const OrderedJson found = decisions_json(*problem, strategy);
  ASSERT_EQ(found.size(), 2u);
  const OrderedJson& even = found[0];
  const OrderedJson& one = found[1];
  EXPECT_EQ(even["operators"], all - alone);
  EXPECT_EQ(one["operators"], alone);
  EXPECT_EQ(even["text"], "all devices equally, ps");
  EXPECT_EQ(even["sync"], "ps");
  EXPECT_EQ(even["instances"], 3);
  ASSERT_EQ(even["devices"].size(), 3u);
  for (const auto& device : even["devices"]) EXPECT_EQ(device["samples"], 4);
  EXPECT_TRUE(one["sync"].is_null());
  ASSERT_EQ(one["devices"].size(), 1u);
  EXPECT_EQ(one["devices"][0]["name"], problem->cluster->device(DeviceId(1)).name);
  EXPECT_EQ(one["devices"][0]["samples"], 12);
  EXPECT_DOUBLE_EQ(even["time_share"].get<double>() + one["time_share"].get<double>(), 1);
  EXPECT_EQ(even["parameter_bytes"].get<Bytes>() + one["parameter_bytes"].get<Bytes>(), bytes);
  EXPECT_GT(one["parameter_bytes"].get<Bytes>(), 0);
}

TEST(DecisionsJson, MicroBatchesAreInstances) {
  const auto problem = decide::model_problem("lenet5-tiny", 2, 12);
  decide::Strategy halves =
      decide::uniform_strategy(*problem, {.replicas = {{DeviceId(0)}}, .recompute = true});
  halves.micro_batches = 2;
  const OrderedJson found = decisions_json(*problem, halves);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["instances"], 2);
  EXPECT_EQ(found[0]["devices"].size(), 1u);
  EXPECT_EQ(found[0]["recompute"], true);
}

}  // namespace
}  // namespace heterog::explain
