// The best plain data parallelism is the best, whatever is given up on the way to it.
#include "search/answers/devices_used.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "oracle/simulated_oracle.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

// In rank order, then that one in the others; all of them simulated.
NamedStrategy best_of_all(BatchEvaluator& evaluator) {
  std::optional<NamedStrategy> best;
  Evaluation least;
  const auto consider = [&](const NamedStrategy& one) {
    const Evaluation now = evaluator.evaluate(one.strategy).evaluation;
    if (best && !better(now, least)) return;
    best = one;
    least = now;
  };
  const std::vector<NamedStrategy> all = baseline_strategies(evaluator.problem());
  for (const NamedStrategy& one : all) {
    if (one.name != "single" && one.strategy.order == decide::OrderPolicy::kRank) consider(one);
  }
  const std::string name = best->name;
  for (const NamedStrategy& one : all) {
    if (one.name == name) consider(one);
  }
  return *best;
}

TEST(BestTogether, IsTheBestOfAll) {
  int served = 0;
  for (const char* cluster :
       {"mixed-64gpu", "heterog-8gpu-10gbe", "heterog-8gpu", "office-mixed"}) {
    for (const char* model : {"vgg19", "mobilenet_v2", "ncf"}) {
      SCOPED_TRACE(std::string(model) + " on " + cluster);
      const auto problem = load_test_problem(model, cluster, 256);
      ThreadPool threads(2);
      oracle::SimulatedOracle oracle(*problem, threads);
      BatchEvaluator evaluator(oracle);
      const NamedStrategy expected = best_of_all(evaluator);
      const auto found = best_together(oracle);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->name, expected.name);
      EXPECT_EQ(evaluator.evaluate(found->strategy).evaluation.step,
                evaluator.evaluate(expected.strategy).evaluation.step);
      served += expected.name.ends_with("-ps");
    }
  }
  EXPECT_GE(served, 1);
}

}  // namespace
}  // namespace heterog::search
