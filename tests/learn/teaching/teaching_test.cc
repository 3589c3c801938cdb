// The order that strategies of a case have, and the examples that searches give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "learn/network/problems.h"
#include "learn/reinforce/case.h"
#include "learn/teaching/teacher.h"
#include "oracle/simulated_oracle.h"
#include "search/starts/baselines.h"

namespace heterog::learn {
namespace {

using decide::OrderPolicy;
using decide::SyncMethod;

decide::Strategy even(const cost::Problem& problem, SyncMethod sync, OrderPolicy order) {
  decide::Strategy strategy = search::even_all_reduce(problem);
  for (decide::UnitDecision& unit : strategy.units) unit.sync = sync;
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
  const OrderPolicy found = find_order(evaluator);
  EXPECT_NE(found, OrderPolicy::kRank);
  for (const OrderPolicy order : decide::kSearchedOrders) {
    EXPECT_LE(together(found), together(order));
  }
  EXPECT_LT(1.1 * together(found), together(OrderPolicy::kRank));
}

// What is nearest to a plan may be worse than one action for all.
TEST(Lesson, MayBeOneActionForAll) {
  const Case c =
      make_case("vgg", test_problem("vgg19-tiny", "heterog-4gpu", 64, 6), OrderPolicy::kRank);
  oracle::Evaluator simulator(*c.problem);
  oracle::BatchEvaluator evaluator(simulator);
  const Actions all(c.problem->grouping.count(), c.space->id(space::kReplicated[3]));
  const Actions alone(all.size(), c.space->single(DeviceId(1)));
  const auto likes_all = [&](const Actions& actions) {
    return search::Evaluation{.step = actions == all ? 1'000'000 : 1'100'000, .feasible = true};
  };
  EXPECT_EQ(simplify(c, alone, evaluator, likes_all), all);
  const auto likes_alone = [&](const Actions& actions) {
    return search::Evaluation{.step = actions == alone ? 1'000'000 : 1'100'000, .feasible = true};
  };
  EXPECT_EQ(simplify(c, alone, evaluator, likes_alone), alone);
}

// What differs from its neighbours in vain is merged with them, by the judge that is given.
TEST(Lesson, IsSimplified) {
  const Case c =
      make_case("vgg", test_problem("vgg19-tiny", "heterog-4gpu", 64, 6), OrderPolicy::kRank);
  oracle::Evaluator simulator(*c.problem);
  oracle::BatchEvaluator evaluator(simulator);
  Actions mixed(c.problem->grouping.count(), c.space->single(DeviceId(0)));
  mixed[2] = c.space->single(DeviceId(1));
  const auto by_changes = [&](const Actions& actions) {
    search::Evaluation evaluation{.step = 1'000'000, .feasible = true};
    if (actions[0] != mixed[0]) evaluation.step += 500'000;
    for (std::size_t n = 1; n < actions.size(); ++n) {
      if (actions[n] != actions[n - 1]) evaluation.step += 100'000;
    }
    return evaluation;
  };
  EXPECT_EQ(simplify(c, mixed, evaluator, by_changes), Actions(mixed.size(), mixed[0]));
  const auto by_mixture = [&](const Actions& actions) {
    search::Evaluation evaluation{.step = 1'000'000, .feasible = true};
    if (actions != mixed) evaluation.step += 100'000;
    return evaluation;
  };
  EXPECT_EQ(simplify(c, mixed, evaluator, by_mixture), mixed);
}

}  // namespace
}  // namespace heterog::learn
