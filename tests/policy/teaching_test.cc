// The order that strategies of a case have, and the examples that searches give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "gnn/problems.h"
#include "oracle/simulated_oracle.h"
#include "planner/baselines.h"
#include "policy/case.h"
#include "policy/teaching/teacher.h"

namespace heterog::policy {
namespace {

using compiler::OrderPolicy;
using compiler::SyncMethod;

compiler::Strategy even(const cost::Problem& problem, SyncMethod sync, OrderPolicy order) {
  compiler::Strategy strategy = planner::even_all_reduce(problem);
  for (compiler::UnitDecision& unit : strategy.units) unit.sync = sync;
  strategy.order = order;
  return strategy;
}

// Ranks that know no queue cost parameter servers a third of a step here, and all-reduce nothing.
TEST(OrderOfACase, SuitsServersAndAllReduce) {
  const auto problem = test_problem("mobilenet_v2-tiny", "heterog-8gpu", 64, 24);
  oracle::Evaluator simulator(*problem);
  oracle::BatchEvaluator evaluator(simulator);
  const auto together = [&](OrderPolicy order) {
    const auto step = [&](SyncMethod sync) {
      return to_seconds(evaluator.evaluate(even(*problem, sync, order)).evaluation.step);
    };
    return step(SyncMethod::kAllReduce) * step(SyncMethod::kParameterServer);
  };
  const OrderPolicy found = find_order(evaluator, "faster");
  EXPECT_NE(found, OrderPolicy::kRank);
  for (const OrderPolicy order : compiler::kSearchedOrders) {
    EXPECT_LE(together(found), together(order));
  }
  EXPECT_LT(1.1 * together(found), together(OrderPolicy::kRank));
  EXPECT_EQ(find_order(evaluator, "rank"), OrderPolicy::kRank);
}

// Shares of a plan's own are those of no action of M + 4.
TEST(Lesson, IsNoWorseThanOneActionForAll) {
  for (const char* model : {"vgg19-tiny", "mobilenet_v2-tiny"}) {
    const Case c =
        make_case(model, test_problem(model, "heterog-4gpu", 64, 12), OrderPolicy::kRank);
    const auto lesson = teach(c, 200, Rng(3));
    ASSERT_TRUE(lesson);
    oracle::Evaluator simulator(*c.problem);
    oracle::BatchEvaluator evaluator(simulator);
    const auto best_of = [&](const Actions& actions) {
      Nanoseconds best = std::numeric_limits<Nanoseconds>::max();
      for (const OrderPolicy order : compiler::kSearchedOrders) {
        compiler::Strategy strategy = strategy_of(c, actions);
        strategy.order = order;
        best = std::min(best, evaluator.evaluate(strategy).evaluation.step);
      }
      return to_seconds(best);
    };
    const double taught = best_of(lesson->actions);
    for (const space::ActionId id : c.space->ids()) {
      if (c.space->decision(id).replicas.size() < 2) continue;
      EXPECT_LE(taught, 1.01 * best_of(Actions(c.problem->grouping.count(), id)))
          << model << " " << c.space->name(id);
    }
  }
}

// What differs from its neighbours in vain is merged with them, by the judge that is given.
TEST(Lesson, IsSimplified) {
  const Case c =
      make_case("vgg", test_problem("vgg19-tiny", "heterog-4gpu", 64, 6), OrderPolicy::kRank);
  oracle::Evaluator simulator(*c.problem);
  oracle::BatchEvaluator evaluator(simulator);
  Actions mixed(c.problem->grouping.count(), c.space->single(DeviceId(0)));
  mixed[2] = c.space->single(DeviceId(1));
  const auto by_changes = [](const Actions& actions) {
    planner::Evaluation evaluation{.step = 1'000'000, .feasible = true};
    for (std::size_t n = 1; n < actions.size(); ++n) {
      if (actions[n] != actions[n - 1]) evaluation.step += 100'000;
    }
    return evaluation;
  };
  EXPECT_EQ(simplify(c, mixed, evaluator, by_changes), Actions(mixed.size(), mixed[0]));
  const auto by_mixture = [&](const Actions& actions) {
    planner::Evaluation evaluation{.step = 1'000'000, .feasible = true};
    if (actions != mixed) evaluation.step += 100'000;
    return evaluation;
  };
  EXPECT_EQ(simplify(c, mixed, evaluator, by_mixture), mixed);
}

}  // namespace
}  // namespace heterog::policy
