// Passes of layers against the operators that they stand for: what they take, hold and move, and
// what pipelines of them come to.
#include "search/coarse/coarse_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/types.h"
#include "oracle/evaluator.h"
#include "search/pipeline/pipelines.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

using decide::Strategy;
using graph::TensorRole;

Coarse coarse_of(const cost::Problem& problem) {
  auto coarse = coarse_problem(problem, make_chain_of_blocks(problem, kMostLayers));
  EXPECT_TRUE(coarse);
  return std::move(*coarse);
}

// Of ops that are tasks, but for updates.
double seconds_of_passes(const cost::Problem& problem) {
  double seconds = 0;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase != graph::Phase::kUpdate) {
      seconds += problem.costs.mean_seconds(op);
    }
  }
  return seconds;
}

Bytes bytes_of(const cost::Problem& problem, TensorRole role) {
  Bytes bytes = 0;
  for (TensorId tensor : problem.graph->tensor_ids()) {
    if (problem.graph->tensor(tensor).role == role) bytes += problem.graph->bytes(tensor, 1);
  }
  return bytes;
}

TEST(Coarse, TakesAndHoldsWhatTheOpsDo) {
  for (const std::string model : {"bert_large24", "transformer6", "gnmt4", "resnet50", "vgg19"}) {
    SCOPED_TRACE(model);
    const auto problem = load_test_problem(model, "heterog-4gpu", 32);
    const Coarse coarse = coarse_of(*problem);
    EXPECT_LT(coarse.problem->folded->ops.size(), problem->folded->ops.size());
    EXPECT_EQ(coarse.chain.layers.size(),
              make_chain_of_blocks(*problem, kMostLayers).layers.size());
    EXPECT_NEAR(seconds_of_passes(*coarse.problem) / seconds_of_passes(*problem), 1, 1e-6);
    for (const TensorRole role : {TensorRole::kParameter, TensorRole::kGradient}) {
      EXPECT_EQ(bytes_of(*coarse.problem, role), bytes_of(*problem, role));
    }
  }
}

// The cuts that promise most, each in passes of layers beside the same of all ops.
TEST(Coarse, StepsAreThoseOfTheWholeProblem) {
  const struct {
    std::string model, cluster;
    std::int64_t batch;
    double longest;  // in passes of layers, of the step of all ops
  } cases[] = {{"bert_large24", "heterog-4gpu", 32, 1.01},
               {"transformer6", "heterog-8gpu", 240, 1.28},
               {"gnmt4", "heterog-4gpu", 64, 1.12}};
  for (const auto& [model, cluster, batch, longest] : cases) {
    SCOPED_TRACE(model);
    const auto problem = load_test_problem(model, cluster, batch);
    oracle::Evaluator whole(*problem);
    CutPool pool = promising_pool(whole, {});
    const Coarse coarse = coarse_of(*problem);
    oracle::Evaluator rough(*coarse.problem);
    CutPool rough_pool = pool;
    rough_pool.once.chain.layer_of = coarse.chain.layer_of;
    rough_pool.again.chain.layer_of = coarse.chain.layer_of;
    Staging how{.pattern = decide::Pattern::kZeroBubble, .order_rounds = 1};
    how.tied_together = ties_layers(*problem, pool.once.chain);
    Nanoseconds best = 0, best_by_rough = 0, least_rough = 0;
    for (std::size_t i = 0; i < 12; ++i) {
      const Strategy strategy = pool.strategy(*problem, pool.found[i], how);
      const Strategy in_passes = rough_pool.strategy(*coarse.problem, pool.found[i], how);
      ASSERT_EQ(of_whole(coarse, in_passes), strategy);
      const Nanoseconds step = whole.evaluate(strategy).step;
      const Nanoseconds about = rough.evaluate(in_passes).step;
      // Passes of layers hold each other up for longer than ops do, most of all large ones.
      EXPECT_GE(to_seconds(about), 0.99 * to_seconds(step)) << i;
      EXPECT_LE(to_seconds(about), longest * to_seconds(step)) << i;
      if (i == 0 || step < best) best = step;
      if (i == 0 || about < least_rough) {
        least_rough = about;
        best_by_rough = step;
      }
    }
    EXPECT_LE(to_seconds(best_by_rough), 1.09 * to_seconds(best));
  }
}

// What is made of parameters alone has units of its own where the stages that read it make it.
TEST(Coarse, StrategiesAreThoseOfTheWholeProblemWhereCopiesAreMadeTwice) {
  const auto problem = load_test_problem("../tests/data/masters_bfloat16", "fastt-4gpu", 8);
  const Chain chain = make_chain(*problem, 6);
  const auto coarse = coarse_problem(*problem, chain);
  ASSERT_TRUE(coarse);
  ASSERT_TRUE(shares_copies(*problem, chain));
  ASSERT_TRUE(shares_copies(*coarse->problem, coarse->chain));
  LayerTimes times(*problem, chain);
  const StageCosts costs(times, 2, false);
  const Pipelines stages = {{{0, 3, {DeviceId(0)}}, {3, chain.layers.size(), {DeviceId(1)}}}};
  oracle::Evaluator whole(*problem);
  for (const Copies copies : {Copies::kWhereMade, Copies::kWhereRead}) {
    const Staging how{.micro_batches = 2, .copies = copies};
    const Strategy strategy = stage_strategy(*problem, chain, costs, stages, how);
    const Strategy mapped =
        of_whole(*coarse, stage_strategy(*coarse->problem, coarse->chain, costs, stages, how));
    EXPECT_EQ(whole.evaluate(mapped).step, whole.evaluate(strategy).step);
    EXPECT_EQ(mapped.units.size(), strategy.units.size());
  }
}

// An op without a rule runs once, on everything: no pass of a layer takes a slice.
TEST(Coarse, IsNoneWhereAnOpCannotRunOnSlices) {
  graph::GraphBuilder builder("whole");
  const TensorId input =
      builder.add_tensor({.name = "x", .role = TensorRole::kInput, .shape = {{1, 0}, {0, 4}}});
  const TensorId middle = builder.add_tensor({.name = "y", .shape = {{1, 0}, {0, 4}}});
  const TensorId loss = builder.add_tensor({.name = "loss", .role = TensorRole::kOutput});
  builder.add_op({.name = "unknown",
                  .type = "custom.unknown.default",
                  .args = {graph::tensor_value(input)},
                  .outputs = {middle}});
  builder.add_op({.name = "sum",
                  .type = "aten.sum.default",
                  .args = {graph::tensor_value(middle)},
                  .outputs = {loss}});
  builder.set_loss(loss);
  const auto problem = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(std::move(builder).build("whole")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/heterog-4gpu.json")),
      cost::CalibratedModel(), 8);
  EXPECT_FALSE(coarse_problem(*problem, make_chain(*problem, 2)));
}

}  // namespace
}  // namespace heterog::search
