// What is found in passes of layers, as it is.
#include "search/coarse/coarse_pipelines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "oracle/evaluator.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

constexpr PipelineLimits kLimits{.count = 12, .improved = true, .all_patterns = false};

double shortest(const TriedPipelines& tried) {
  double seconds = std::numeric_limits<double>::infinity();
  for (const TriedPipelines::One& one : tried.all) {
    seconds = std::min(seconds, to_seconds(one.evaluation.step));
  }
  return seconds;
}

// The simulator, but of its own problem alone.
class OfOneProblem final : public oracle::Oracle {
 public:
  explicit OfOneProblem(const cost::Problem& problem) : evaluator_(problem) {}
  std::vector<Measured> measure(std::span<const decide::Strategy> strategies) override {
    return evaluator_.measure(strategies);
  }
  const cost::Problem& problem() const override { return evaluator_.problem(); }

 private:
  oracle::Evaluator evaluator_;
};

TEST(CoarsePipelines, AreFewerPlansAndShorterSteps) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 48);
  oracle::Evaluator oracle(*problem);
  BatchEvaluator all(oracle), some(oracle);
  const TriedPipelines as_they_are = try_pipelines(all, kLimits);
  Rng rng(1);
  const TriedPipelines tried = try_pipelines_coarsely(some, kLimits, &rng);
  EXPECT_TRUE(tried.in_passes);
  EXPECT_LT(some.evaluations(), all.evaluations() / 4);
  EXPECT_LT(shortest(tried), shortest(as_they_are));
  for (const TriedPipelines::One& one : tried.all) {
    EXPECT_EQ(one.evaluation.step, oracle.evaluate(one.strategy).step);
  }
}

TEST(CoarsePipelines, AreSimulatedAsTheyAreByAnOracleOfOneProblem) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 32);
  OfOneProblem oracle(*problem);
  BatchEvaluator all(oracle), some(oracle);
  const TriedPipelines as_they_are = try_pipelines(all, kLimits);
  const TriedPipelines tried = try_pipelines_coarsely(some, kLimits);
  EXPECT_FALSE(tried.in_passes);
  EXPECT_EQ(some.evaluations(), all.evaluations());
  EXPECT_EQ(shortest(tried), shortest(as_they_are));
}

// Running statistics of batch normalisation, for which strict turns would wait in a circle, are
// left out of passes of layers.
TEST(CoarsePipelines, TakeNoTurnsThatTheOpsCannotTake) {
  const auto problem = load_test_problem("resnet50", "heterog-8gpu", 1536);
  oracle::Evaluator oracle(*problem);
  BatchEvaluator evaluator(oracle);
  Rng rng(6);  // by which climbing gets to strict turns
  const TriedPipelines tried = try_pipelines_coarsely(evaluator, kLimits, &rng);
  EXPECT_TRUE(tried.in_passes);
  EXPECT_EQ(evaluator.refused(), 0);
}

bool is_folded(const TriedPipelines::One& one) {
  const std::vector<Stage>& stages = one.cut->stages;
  return std::ranges::any_of(stages, [&](const Stage& stage) {
    return std::ranges::count(stages, stage.devices, &Stage::devices) > 1;
  });
}

// Passes of layers hold each other up for longer there and back than along the devices: where few
// are simulated as they are, both kinds are.
TEST(CoarsePipelines, TakeTurnsAlongTheDevicesAndThereAndBack) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 32);
  oracle::Evaluator oracle(*problem);
  BatchEvaluator evaluator(oracle);
  const TriedPipelines tried = try_pipelines_coarsely(evaluator, of_few(kLimits));
  ASSERT_GE(tried.all.size(), 2U);
  EXPECT_EQ(tried.all[0].strategy.micro_batches, tried.all[1].strategy.micro_batches);
  EXPECT_NE(is_folded(tried.all[0]), is_folded(tried.all[1]));
}

// What is simulated in passes of layers alone is no plan of the budget.
TEST(CoarsePipelines, KeepToABudget) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 32);
  oracle::Evaluator oracle(*problem);
  BatchEvaluator few(oracle, {.evaluations = 3});
  Rng rng(1);
  const TriedPipelines tried = try_pipelines_coarsely(few, kLimits, &rng);
  EXPECT_FALSE(tried.all.empty());
  EXPECT_LE(few.evaluations(), 3);
}

}  // namespace
}  // namespace heterog::search
