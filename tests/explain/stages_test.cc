// Where the devices of a pipeline stand still.
#include "explain/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decide/micro_batches.h"
#include "explain/plans.h"

namespace heterog::explain {
namespace {

// The forward pass cut in two places, with the backward ops of each part where its forward ops are.
decide::Strategy three_stages(const cost::Problem& problem, std::int64_t micro_batches) {
  const graph::ModelGraph& graph = *problem.graph;
  decide::Strategy strategy;
  std::size_t forward = 0;
  for (OpId op : graph.op_ids()) forward += graph.op(op).phase == graph::Phase::kForward;
  for (OpId op : graph.op_ids()) {
    const OpId of = graph.op(op).forward.valid() ? graph.op(op).forward : op;
    strategy.unit_of_op.push_back(UnitId(std::min<std::size_t>(2, 3 * of.value() / forward)));
  }
  for (std::size_t device = 0; device < 3; ++device) {
    strategy.units.push_back(decide::single_decision(DeviceId(device)));
  }
  return decide::accumulate(problem, strategy, micro_batches);
}

TEST(Stages, AddUpToTheLastBackwardPass) {
  const auto problem = decide::model_problem("vgg19-tiny", 3, 12);
  const decide::Strategy strategy = three_stages(*problem, 4);
  const sim::Simulated simulated = simulated_plan(*problem, strategy);
  const auto pipeline = pipeline_time(*problem, strategy, simulated);
  ASSERT_TRUE(pipeline);
  EXPECT_EQ(pipeline->micro_batches, 4);
  ASSERT_EQ(pipeline->stages.size(), 3u);
  Nanoseconds end = 0;
  for (TaskId task : simulated.plan.task_ids()) {
    const bool computes = simulated.plan.kind[task] == compiler::TaskKind::kCompute;
    const graph::Phase phase = problem->graph->op(simulated.plan.op[task]).phase;
    if (computes && phase == graph::Phase::kBackward) {
      end = std::max(end, simulated.result.end[task]);
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const StageTime& stage = pipeline->stages[i];
    EXPECT_EQ(stage.devices, std::vector<DeviceId>{DeviceId(i)});
    EXPECT_EQ(stage.fills + stage.computes + stage.bubbles + stage.drains, end);
    EXPECT_GE(std::min({stage.fills, stage.computes, stage.bubbles, stage.drains}), 0);
    EXPECT_LE(stage.computes, pipeline->stages[pipeline->slowest].computes);
  }
  EXPECT_EQ(pipeline->stages[0].fills, 0);
  EXPECT_GT(std::min(pipeline->stages[1].fills, pipeline->stages[2].fills), 0);
  EXPECT_EQ(pipeline->one_more_saves, pipeline->stages[pipeline->slowest].idle() / 5);
}

TEST(Stages, AreThoseOfPipelinesAlone) {
  const auto problem = decide::model_problem("vgg19-tiny", 3, 12);
  const auto even = even_strategy(*problem, decide::SyncMethod::kAllReduce);
  for (const decide::Strategy& strategy :
       {three_stages(*problem, 1), even, decide::accumulate(*problem, even, 3)}) {
    EXPECT_FALSE(pipeline_time(*problem, strategy, simulated_plan(*problem, strategy)));
  }
}

}  // namespace
}  // namespace heterog::explain
