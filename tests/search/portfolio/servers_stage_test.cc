// Servers that are chosen when all else is found.
#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "oracle/simulated_oracle.h"
#include "search/portfolio/stages.h"
#include "search/problems.h"
#include "search/starts/balanced_servers.h"
#include "search/starts/baselines.h"

namespace heterog::search::portfolio {
namespace {

// Behind a slow network, beside even shares: rows of parameters on several servers are faster,
// shares by speed more so, and most of all once they are settled, without the slower machines.
TEST(ServersStage, SettlesSharesBySpeedBesideServersOfRows) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu-10gbe", 192);
  ThreadPool pool(2);
  oracle::SimulatedOracle oracle(*problem, pool);
  PlannerContext context{.oracle = oracle, .rng = Rng(1)};
  const PortfolioOptions options;
  Search search{.context = context,
                .options = options,
                .evaluator = BatchEvaluator(oracle, {.evaluations = 1}),
                .costly = false,
                .few = false,
                .limited = false,
                .groups = space::summarize_groups(*problem)};
  const auto step_of = [&](const decide::Strategy& strategy) {
    return search.evaluator.evaluate(strategy).evaluation;
  };
  const decide::Strategy even = even_all_reduce(*problem);
  consider(search, even, step_of(even), "ev-ar");
  choose_servers(search);
  EXPECT_EQ(search.result.found_by, "cp-ps + several servers + shares");
  EXPECT_EQ(search.result.strategy.units[UnitId(0)].replicas.size(), 4u);
  decide::Strategy unsettled =
      with_several_servers(*problem, proportional_ps(*problem), /*of_all=*/false);
  for (decide::OrderPolicy order : decide::kSearchedOrders) {
    unsettled.order = order;
    EXPECT_LT(search.result.evaluation.step, step_of(unsettled).step);
  }
}

}  // namespace
}  // namespace heterog::search::portfolio
