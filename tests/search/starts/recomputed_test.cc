// Forward passes that run again: blocks of all groups, and less memory.
#include "search/starts/recomputed.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/simulated_oracle.h"
#include "search/portfolio/portfolio.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

Bytes fullest(const oracle::Measured& measured) {
  return std::ranges::max(measured.peak_bytes.raw());
}

TEST(Recomputed, TakesLessMemoryAndMoreTime) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 96);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  const decide::Strategy whole = even_all_reduce(*problem);
  const std::vector<decide::Strategy> again = recomputed(*problem, whole);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_LT(again[0].units.size(), again[1].units.size());
  BatchEvaluator batch(simulator);
  const oracle::Measured before = batch.evaluate(whole);
  for (const decide::Strategy& one : again) {
    for (const decide::UnitDecision& unit : one.units) EXPECT_TRUE(unit.recompute);
    const oracle::Measured measured = batch.evaluate(one);
    EXPECT_LT(fullest(measured), 0.8 * static_cast<double>(fullest(before)));
    EXPECT_GT(measured.evaluation.step, before.evaluation.step);
  }
}

// No plan of a batch that fits nowhere as it is takes longer than data parallelism that makes its
// activations again.
TEST(Recomputed, IsABarWhereNothingElseFits) {
  const auto problem = load_test_problem("transformer12", "autosync-b7", 768);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  PlannerContext context{.oracle = simulator, .rng = Rng(0)};
  context.budget.evaluations = 60;
  const PlannerResult result = best_plan(context);
  BatchEvaluator evaluator(simulator);
  bool fits = false;
  for (const NamedStrategy& whole : baseline_strategies(*problem)) {
    if (whole.name != "cp-ps" || whole.strategy.order != decide::OrderPolicy::kRankQueued) continue;
    for (const decide::Strategy& one : recomputed(*problem, whole.strategy)) {
      const Evaluation evaluation = evaluator.evaluate(one).evaluation;
      fits |= evaluation.feasible;
      EXPECT_FALSE(better(evaluation, result.evaluation));
    }
  }
  EXPECT_TRUE(fits);
}

}  // namespace
}  // namespace heterog::search
