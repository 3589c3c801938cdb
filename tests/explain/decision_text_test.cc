// Decisions are told by the samples that each device gets.
#include "explain/decision_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "explain/gradients.h"
#include "explain/plans.h"

namespace heterog::explain {
namespace {

using decide::SyncMethod;

TEST(DecisionText, SaysDevicesSharesAndAggregation) {
  const auto problem = decide::model_problem("lenet5-tiny", 3, 12);
  const auto text = [&](const std::vector<decide::Replica>& replicas, SyncMethod sync) {
    return decision_text(*problem, {}, {.replicas = replicas, .sync = sync});
  };
  const DeviceId a(0), b(1), c(2);
  const auto name = [&](DeviceId device) { return problem->cluster->device(device).name; };
  EXPECT_EQ(text({{a}}, SyncMethod::kAllReduce), name(a));
  EXPECT_EQ(text({{a}, {b}, {c}}, SyncMethod::kParameterServer), "all devices equally, ps");
  // 12 samples by 3 : 2 : 1.
  EXPECT_EQ(text({{a, 3}, {b, 2}, {c, 1}}, SyncMethod::kAllReduce),
            "all devices 6:4:2, all-reduce");
  EXPECT_EQ(text({{c, 3}, {a, 1}}, SyncMethod::kParameterServer),
            name(c) + " + " + name(a) + " 9:3, ps");
  const decide::Strategy halves{.micro_batches = 2};
  EXPECT_EQ(decision_text(*problem, halves, {.replicas = {{a, 2}, {b, 1}}}),
            name(a) + " + " + name(b) + " 8:4, all-reduce, in 4 instances");
  EXPECT_EQ(decision_text(*problem, halves, {.replicas = {{a}}}), name(a) + ", in 2 instances");
}

// Sizes that differ by one sample are as equal as whole samples can be.
TEST(DecisionText, OneSampleMoreIsStillEqual) {
  const auto problem = decide::model_problem("lenet5-tiny", 3, 13);
  EXPECT_EQ(decision_text(*problem, {}, decide::even_decision(*problem, SyncMethod::kAllReduce)),
            "all devices equally, all-reduce");
}

TEST(HomeText, SaysWhereAParameterIsKept) {
  const auto problem = decide::model_problem("lenet5-tiny", 3, 12);
  const DeviceId a(0), b(1);
  const std::string name = problem->cluster->device(b).name;
  EXPECT_EQ(home_text(*problem, {.replicas = {b}}), "on " + name);
  EXPECT_EQ(home_text(*problem, {.replicas = {a, b}}), "all-reduce over 2 devices");
  EXPECT_EQ(home_text(*problem, {.replicas = {a, b}, .server = b}),
            "ps at " + name + " for 2 devices");
  EXPECT_EQ(
      home_text(*problem, {.replicas = {a, b}, .method = SyncMethod::kGathered, .rows = {0, 3, 7}}),
      "gathered over 2 devices");
}

// What adapters train is sharded, and of the frozen base what can lie in rows does.
TEST(GradientsText, SaysWhatIsFrozen) {
  const auto problem = decide::model_problem("llama7b_lora-tiny", 3, 12);
  const auto text = [&](const std::vector<double>& rows) {
    auto strategy =
        decide::uniform_strategy(*problem, decide::even_decision(*problem, SyncMethod::kGathered));
    for (double weight : rows) strategy.row_weights.push_back(weight);
    return gradients_text(*problem, strategy);
  };
  EXPECT_THAT(text({}), testing::HasSubstr(" by shards among 3 devices; "));
  EXPECT_THAT(text({}), testing::HasSubstr(" frozen in rows, gathered for each pass"));
  EXPECT_THAT(text({}), testing::Not(testing::HasSubstr("frozen and whole")));
  // No row of anything for the last device.
  EXPECT_THAT(text({1, 1, 1e-6}), testing::HasSubstr(" frozen and whole"));
  EXPECT_THAT(text({1, 1, 1e-6}), testing::Not(testing::HasSubstr("in rows")));
}

TEST(DecisionOf, FindsTheUnitOfAnOp) {
  const auto problem = decide::model_problem("lenet5-tiny", 2, 8);
  decide::Strategy strategy =
      decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0)));
  const OpId op(0);
  strategy.units[UnitId(problem->grouping.group_of[op].value())] =
      decide::single_decision(DeviceId(1));
  EXPECT_EQ(decision_of(*problem, strategy, op).replicas.front().device, DeviceId(1));
  // Units of the strategy's own: all ops in one.
  strategy.unit_of_op = IdVector<OpId, UnitId>(problem->graph->op_count(), UnitId(0));
  strategy.units = IdVector<UnitId, decide::UnitDecision>(1, decide::single_decision(DeviceId(0)));
  EXPECT_EQ(decision_of(*problem, strategy, op).replicas.front().device, DeviceId(0));
}

}  // namespace
}  // namespace heterog::explain
