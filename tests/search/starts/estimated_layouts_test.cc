// The dynamic program against all paths, and what it is for: starts that baselines do not lead to.
#include "search/starts/estimated_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"
#include "oracle/simulated_oracle.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

double cost_of(const LayoutCosts& costs, const std::vector<std::size_t>& path) {
  double sum = 0;
  for (std::size_t g = 0; g < path.size(); ++g) {
    sum += costs.own[g * costs.layouts + path[g]];
    if (g > 0) sum += costs.crossing[g] * costs.moving[path[g - 1] * costs.layouts + path[g]];
  }
  return sum;
}

TEST(CheapestLayouts, AreTheBestOfAllPaths) {
  Rng rng(7);
  constexpr std::size_t kGroups = 5, kLayouts = 3, kPaths = 243;
  for (int trial = 0; trial < 200; ++trial) {
    LayoutCosts costs{.layouts = kLayouts};
    const double dear = static_cast<double>(trial % 4);  // moving costs nothing in some
    for (std::size_t i = 0; i < kGroups * kLayouts; ++i) costs.own.push_back(rng.uniform());
    for (std::size_t i = 0; i < kGroups; ++i) costs.crossing.push_back(dear * rng.uniform());
    for (std::size_t i = 0; i < kLayouts * kLayouts; ++i) {
      costs.moving.push_back(i % (kLayouts + 1) == 0 ? 0 : rng.uniform());
    }
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t code = 0; code < kPaths; ++code) {
      std::vector<std::size_t> path;
      for (std::size_t g = 0, rest = code; g < kGroups; ++g, rest /= kLayouts) {
        path.push_back(rest % kLayouts);
      }
      best = std::min(best, cost_of(costs, path));
    }
    EXPECT_NEAR(cost_of(costs, cheapest_layouts(costs)), best, 1e-12) << trial;
  }
}

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
