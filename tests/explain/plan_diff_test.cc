// Plans differ by what they decide, whatever units they decide it for.
#include "explain/plan_diff.h"

#include <gmock/gmock.h>

#include "explain/plans.h"

namespace heterog::explain {
namespace {

using decide::SyncMethod;
using testing::HasSubstr;

class PlanDiff : public testing::Test {
 protected:
  OrderedJson diff_of(const decide::Strategy& a, const decide::Strategy& b) {
    const sim::Simulated by_a = simulated_plan(*problem_, a), by_b = simulated_plan(*problem_, b);
    const ComparedPlan one{"a.json", "hand", *problem_, a, by_a};
    const ComparedPlan other{"b.json", "hand", *problem_, b, by_b};
    text_ = diff_text(one, other);
    return diff_json(one, other);
  }

  std::unique_ptr<const cost::Problem> problem_ = decide::model_problem("vgg19-tiny", 3, 12);
  decide::Strategy even_ = even_strategy(*problem_, SyncMethod::kAllReduce);
  std::string text_;
};

// The same weights times two come to the same samples; one unit for all ops to the same decisions.
TEST_F(PlanDiff, TheSameSamplesAreNoDifference) {
  decide::Strategy doubled = even_;
  for (UnitId unit : id_range<UnitId>(doubled.units.size())) {
    for (decide::Replica& replica : doubled.units[unit].replicas) replica.weight *= 2;
  }
  decide::Strategy one_unit = even_;
  one_unit.unit_of_op = IdVector<OpId, UnitId>(problem_->graph->op_count(), UnitId(0));
  one_unit.units = IdVector<UnitId, decide::UnitDecision>(1, even_.units[UnitId(0)]);
  for (const decide::Strategy& same : {even_, doubled, one_unit}) {
    const OrderedJson diff = diff_of(even_, same);
    EXPECT_EQ(diff["groups_changed"], 0);
    EXPECT_EQ(diff["time_share_changed"].get<double>(), 0);
    EXPECT_TRUE(diff["decisions"].empty());
    EXPECT_TRUE(diff["parameters"].empty());
  }
}

TEST_F(PlanDiff, OneGroupThatMovesIsTheOnlyChange) {
  decide::Strategy moved = even_;
  moved.units[UnitId(0)] = decide::single_decision(DeviceId(1));
  const OrderedJson diff = diff_of(even_, moved);
  EXPECT_EQ(diff["groups_changed"], 1);
  ASSERT_EQ(diff["decisions"].size(), 1u);
  EXPECT_EQ(diff["decisions"][0]["a"], "all devices equally, all-reduce");
  EXPECT_EQ(diff["decisions"][0]["b"], problem_->cluster->device(DeviceId(1)).name);
  EXPECT_EQ(diff["decisions"][0]["groups"].size(), 1u);
  EXPECT_THAT(text_, HasSubstr("decided differently: 1 of "));
}

// Frozen weights, which the graph has among the buffers.
TEST_F(PlanDiff, SaysWhatLiesInRows) {
  problem_ = decide::model_problem("llama7b_lora-tiny", 3, 12);
  const OrderedJson diff = diff_of(even_strategy(*problem_, SyncMethod::kSharded),
                                   even_strategy(*problem_, SyncMethod::kGathered));
  ASSERT_EQ(diff["parameters"].size(), 1u);
  EXPECT_EQ(diff["parameters"][0]["a"], "whole where it is read");
  EXPECT_EQ(diff["parameters"][0]["b"], "gathered over 3 devices");
}

}  // namespace
}  // namespace heterog::explain
