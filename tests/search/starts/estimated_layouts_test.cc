// What they are for: starts that baselines do not lead to.
#include "search/starts/estimated_layouts.h"

#include <gtest/gtest.h>

#include <limits>

#include "oracle/simulated_oracle.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

// VGG-19 keeps most parameters in three layers of little work, which 10 GbE makes dear to copy.
TEST(EstimatedLayouts, KeepHeavyLayersOffSlowLinks) {
  const auto problem = load_test_problem("vgg19", "office-mixed", 192);
  ThreadPool pool(1);
  oracle::SimulatedOracle oracle(*problem, pool);
  BatchEvaluator evaluator(oracle);
  Evaluation best = evaluator.evaluate(even_all_reduce(*problem)).evaluation;
  for (const NamedStrategy& baseline : baseline_strategies(*problem)) {
    const Evaluation now = evaluator.evaluate(baseline.strategy).evaluation;
    if (better(now, best)) best = now;
  }
  const std::vector<decide::Strategy> layouts = estimated_layouts(*problem);
  ASSERT_FALSE(layouts.empty());
  double least = std::numeric_limits<double>::infinity();
  for (const decide::Strategy& layout : layouts) {
    const Evaluation now = evaluator.evaluate(layout).evaluation;
    if (now.feasible) least = std::min(least, to_seconds(now.step));
  }
  EXPECT_LT(least, 0.8 * to_seconds(best.step));
}

}  // namespace
}  // namespace heterog::search
