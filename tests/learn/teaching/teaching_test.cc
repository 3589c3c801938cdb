// The order that strategies of a case have, and the examples that searches give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "decide/decisions.h"
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
      make_case("vgg", test_problem("vgg19-tiny", "heterog-4gpu", 64, 6), {OrderPolicy::kRank});
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
      make_case("vgg", test_problem("vgg19-tiny", "heterog-4gpu", 64, 6), {OrderPolicy::kRank});
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

Case staged_case(const std::string& model, std::int64_t batch, int max_groups) {
  const auto problem = test_problem(model, "heterog-4gpu", batch, 2000);
  return make_case(model, regrouped(*problem, max_groups), {OrderPolicy::kRank},
                   space::ActionTable::kSets);
}

// Groups are layers: what a forward pass reads is of the same group or one before.
TEST(GroupsOfACase, FollowOneAnother) {
  const Case c = staged_case("bert_large24-tiny", 16, 12);
  const cost::Problem& problem = *c.problem;
  ASSERT_EQ(problem.grouping.count(), 12u);
  std::size_t backward = 0;
  for (OpId op : problem.folded->ops) {
    const GroupId group = problem.grouping.group_of[op];
    if (problem.graph->op(op).phase == graph::Phase::kBackward && group == GroupId(0)) ++backward;
    if (problem.graph->op(op).phase != graph::Phase::kForward) continue;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (read.producer.valid()) EXPECT_LE(problem.grouping.group_of[read.producer], group);
    }
  }
  EXPECT_GT(backward, 0u);
}

// Mostly on small sets of devices, and on more than one of them.
TEST(StagedStrategies, AreTakenInMicroBatches) {
  Case c = staged_case("bert_large24-tiny", 16, 12);
  c.schedule.micro_batches = 4;
  const Actions all(12, c.space->id(space::kReplicated[1]));
  Actions stages(12, c.space->single(DeviceId(0)));
  EXPECT_FALSE(is_staged(c, all));
  EXPECT_FALSE(is_staged(c, stages));
  for (std::size_t n = 6; n < 12; ++n) stages[n] = c.space->single(DeviceId(1));
  EXPECT_TRUE(is_staged(c, stages));
  EXPECT_EQ(strategy_of(c, all).micro_batches, 1);
  EXPECT_EQ(strategy_of(c, stages).micro_batches, 4);
  Actions mostly_all = all;
  mostly_all[0] = c.space->single(DeviceId(0));
  mostly_all[1] = c.space->single(DeviceId(1));
  EXPECT_FALSE(is_staged(c, mostly_all));
}

// A pipeline is said in actions, and comes to about the step of the plan.
TEST(Lesson, MayBeAPipeline) {
  Case c = staged_case("bert_large24", 24, 48);
  oracle::Evaluator simulator(*c.problem);
  oracle::BatchEvaluator evaluator(simulator);
  c.schedule.micro_batches = find_micro_batches(c, evaluator);
  EXPECT_GT(c.schedule.micro_batches, 2);
  const auto lesson = teach(c, 100, Rng(3));
  ASSERT_TRUE(lesson);
  EXPECT_TRUE(is_staged(c, lesson->actions));
  const auto step = [&](const Actions& actions) {
    return to_seconds(evaluator.evaluate(strategy_of(c, actions)).evaluation.step);
  };
  EXPECT_LT(step(lesson->actions), 1.15 * lesson->step_seconds);
  const std::size_t groups = c.problem->grouping.count();
  for (const space::Action& row : space::kReplicated) {
    EXPECT_LT(step(lesson->actions), step(Actions(groups, c.space->id(row))));
  }
}

}  // namespace
}  // namespace heterog::learn
