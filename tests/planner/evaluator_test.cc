// Reward, the order of evaluations, and the batch evaluator's memory and determinism.
#include "planner/evaluator.h"

#include <gtest/gtest.h>

#include <set>

#include "planner/action_space.h"
#include "planner/baselines.h"
#include "planner/batch_evaluator.h"
#include "planner/problems.h"
#include "planner/random_search.h"
#include "support/wide_cluster.h"

namespace heterog::planner {
namespace {

TEST(Reward, IsTheNegativeRootOfSecondsTenfoldWithoutMemory) {
  EXPECT_DOUBLE_EQ(reward(250'000'000, true), -0.5);
  EXPECT_DOUBLE_EQ(reward(4'000'000'000, true), -2);
  EXPECT_DOUBLE_EQ(reward(250'000'000, false), -5);
}

TEST(Better, PutsFeasibilityThenMemoryThenTime) {
  const Evaluation slow{.step = 9, .feasible = true};
  const Evaluation fast{.step = 5, .feasible = true};
  const Evaluation short_by_one{.step = 1, .feasible = false, .missing_bytes = 1};
  const Evaluation short_by_two{.step = 0, .feasible = false, .missing_bytes = 2};
  EXPECT_TRUE(better(fast, slow));
  EXPECT_FALSE(better(slow, fast));
  EXPECT_FALSE(better(slow, slow));
  EXPECT_TRUE(better(slow, short_by_one));
  EXPECT_TRUE(better(short_by_one, short_by_two));
}

TEST(ActionSpace, HasMPlusFourActionsThatAreTheBaselines) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  const ActionSpace actions(*problem);
  ASSERT_EQ(actions.size(), 12u);
  EXPECT_EQ(actions.name(ActionId(0)), problem->cluster->device(DeviceId(0)).name);
  EXPECT_EQ(actions.name(actions.action(Scheme::kProportionalPs)), "CP-PS");
  const auto all = [&](Scheme scheme) {
    return actions.strategy(
        std::vector<ActionId>(problem->grouping.count(), actions.action(scheme)));
  };
  EXPECT_EQ(all(Scheme::kEvenPs), even_ps(*problem));
  EXPECT_EQ(all(Scheme::kEvenAllReduce), even_all_reduce(*problem));
  EXPECT_EQ(all(Scheme::kProportionalPs), proportional_ps(*problem));
  EXPECT_EQ(all(Scheme::kProportionalAllReduce), proportional_all_reduce(*problem));
  EXPECT_EQ(actions.decision(ActionId(3)).replicas,
            (std::vector<compiler::Replica>{{DeviceId(3), 1}}));
}

// 304 actions: those beyond 255 are drawn, and mean what they are called.
TEST(ActionSpace, NumbersMoreActionsThanAByteHolds) {
  const auto problem = support::wide_problem();
  const ActionSpace actions(*problem);
  ASSERT_EQ(actions.size(), 304u);
  EXPECT_EQ(actions.name(ActionId(299)), "g-14/gpu9");
  EXPECT_EQ(actions.name(ActionId(301)), "EV-AR");
  const std::vector<ActionId> all(problem->grouping.count(),
                                  actions.action(Scheme::kEvenAllReduce));
  EXPECT_EQ(actions.strategy(all), even_all_reduce(*problem));
  // Random search draws every action: in 4000 draws a given one of 304 is missed with
  // probability (303/304)^4000 < 2e-6.
  Rng rng(1);
  std::set<ActionId> seen;
  std::size_t draws = 0;
  while (draws < 4000) {
    const auto drawn = random_actions(actions, problem->grouping.count(), rng);
    seen.insert(drawn.begin(), drawn.end());
    draws += drawn.size();
  }
  EXPECT_EQ(seen.contains(actions.action(Scheme::kEvenAllReduce)), true);
  EXPECT_GT(seen.size(), 256u);
  EXPECT_EQ(*seen.rbegin(), ActionId(303));
}

TEST(BatchEvaluator, EvaluatesRepeatsOnceAndEqualsTheEvaluator) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  const std::vector<compiler::Strategy> strategies = {even_ps(*problem), even_all_reduce(*problem),
                                                      even_ps(*problem)};
  Evaluator plain(*problem);
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    BatchEvaluator batch(*problem, pool, {});
    const std::vector<Measured> measured = batch.evaluate(strategies);
    EXPECT_EQ(batch.evaluations(), 2);
    batch.evaluate(strategies);
    EXPECT_EQ(batch.evaluations(), 2);
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      EXPECT_EQ(measured[i].evaluation.step, plain.evaluate(strategies[i]).step);
      EXPECT_EQ(measured[i].peak_bytes, plain.last_peaks());
    }
  }
}

TEST(BatchEvaluator, AFailureReachesTheCallerAndLeavesNoResult) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  compiler::Strategy broken = even_ps(*problem);
  broken.units[UnitId(3)].replicas.clear();
  const std::vector<compiler::Strategy> strategies = {even_ps(*problem), broken,
                                                      even_all_reduce(*problem)};
  Evaluator plain(*problem);
  const Nanoseconds expected = plain.evaluate(strategies[2]).step;
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    BatchEvaluator batch(*problem, pool, {});
    EXPECT_THROW(batch.evaluate(strategies), Error);
    EXPECT_EQ(batch.evaluations(), 0);
    EXPECT_THROW(batch.evaluate(broken), Error);  // not a result of zero
    EXPECT_EQ(batch.evaluate(strategies[2]).evaluation.step, expected);
    EXPECT_EQ(batch.evaluations(), 1);
  }
}

TEST(BatchEvaluator, TellsBucketsAndOrdersApart) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  ThreadPool pool(1);
  BatchEvaluator batch(*problem, pool, {});
  compiler::Strategy fifo = even_all_reduce(*problem);
  fifo.order = compiler::OrderPolicy::kFifo;
  batch.evaluate(std::vector{even_all_reduce(*problem), horovod(*problem), fifo});
  EXPECT_EQ(batch.evaluations(), 3);
}

}  // namespace
}  // namespace heterog::planner
