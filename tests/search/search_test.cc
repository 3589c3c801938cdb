// Candidates, moves, local search, the filling of memory, and the portfolio.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "decide/check_strategy.h"
#include "oracle/simulated_oracle.h"
#include "search/engines/local_search.h"
#include "search/engines/random_search.h"
#include "search/moves/move.h"
#include "search/moves/moves.h"
#include "search/portfolio/portfolio.h"
#include "search/problems.h"
#include "search/starts/baselines.h"
#include "search/starts/memory_fill.h"
#include "search/starts/starts.h"
#include "support/wide_cluster.h"

namespace heterog::search {
namespace {

using decide::SyncMethod;

TEST(OneSpelling, IsOfSingleReplicasAloneAndNoOtherPlan) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  decide::Strategy strategy = proportional_ps(*problem);
  strategy.units[UnitId(1)] = decide::single_decision(DeviceId(2));
  EXPECT_EQ(in_one_spelling(strategy), strategy);
  EXPECT_EQ(distinct_replicas(strategy).size(), 2u);
  decide::Strategy other = strategy;
  other.units[UnitId(1)].sync = SyncMethod::kParameterServer;
  other.units[UnitId(1)].in_turn = true;
  EXPECT_EQ(in_one_spelling(other), strategy);
  oracle::Evaluator evaluator(*problem);
  EXPECT_EQ(evaluator.evaluate(other).step, evaluator.evaluate(strategy).step);
}

TEST(Apply, ReweighMovesAllGroupsWithTheSameReplicasAndNoOther) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  decide::Strategy strategy = even_ps(*problem);
  strategy.units[UnitId(0)] = decide::single_decision(DeviceId(2));
  const Replicas even = strategy.units[UnitId(1)].replicas;
  const Replicas pair = {{DeviceId(0), 3}, {DeviceId(1), 5}};
  const decide::Strategy moved = apply(strategy, {.reweigh = {{even, pair}}});
  EXPECT_EQ(moved.units[UnitId(0)], strategy.units[UnitId(0)]);
  for (std::size_t unit = 1; unit < moved.units.size(); ++unit) {
    EXPECT_EQ(moved.units[UnitId(unit)].replicas, pair);
    EXPECT_EQ(moved.units[UnitId(unit)].sync, SyncMethod::kParameterServer);
  }
}

// Priorities, and servers of single parameters, would be of what a strategy was before it is
// changed.
TEST(Movable, HasNothingThatMovesWouldBreak) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 64);
  const decide::Strategy plain = even_ps(*problem);
  EXPECT_EQ(movable(plain), plain);
  decide::Strategy urgent = plain;
  urgent.order = decide::OrderPolicy::kPriority;
  urgent.priorities = {{problem->folded->ops.front(), 0, 1}};
  urgent.sync = {{.parameter = problem->graph->parameters().front(),
                  .method = SyncMethod::kParameterServer,
                  .server = DeviceId(0)}};
  decide::Strategy expected = plain;
  expected.order = decide::OrderPolicy::kRankQueued;
  EXPECT_EQ(movable(urgent), expected);
  // The rounds of a pipeline's order are improved anew, whatever it has become.
  urgent = plain;
  urgent.micro_batches = 4;
  urgent.order_rounds = 2;
  EXPECT_EQ(movable(urgent), urgent);
}

// A given one of 1,028 actions is missed in 40,000 draws with probability (1027/1028)^40000 <
// 1e-16.
TEST(RandomActions, AreAnyOfThoseOf1024Devices) {
  const auto problem = support::wide_problem();
  const space::ActionSpace actions(*problem);
  Rng rng(1);
  std::set<space::ActionId> seen;
  for (int draw = 0; draw < 40'000; ++draw) {
    seen.insert(random_actions(actions, /*groups=*/1, rng).front());
  }
  EXPECT_EQ(seen.size(), 1028u);
}

// Whatever is proposed from whatever came out of earlier proposals is a strategy of the problem.
TEST(Moves, AlwaysGiveStrategiesThatFitTheProblem) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-8gpu", 12);
  const MoveMaker maker(*problem);
  Rng rng(3);
  // What proposals are told of the step never fits what they have become: they must stand that.
  ThreadPool pool(1);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  Incumbent from{proportional_all_reduce(*problem),
                 evaluator.evaluate(proportional_all_reduce(*problem))};
  std::array<int, kMoveKindCount> changed{};
  for (int i = 0; i < 2000; ++i) {
    const int kind = i % kMoveKindCount;
    const decide::Strategy next =
        apply(from.strategy, maker.propose(from, static_cast<MoveKind>(kind), rng));
    const decide::Strategy strategy = in_one_spelling(next);
    ASSERT_NO_THROW(decide::check_strategy(*problem, strategy, "move"));
    changed[kind] += strategy != in_one_spelling(from.strategy);
    from.strategy = next;
    if (i % 100 == 99) from.strategy = even_ps(*problem);
  }
  for (int kind = 0; kind < kMoveKindCount; ++kind) EXPECT_GT(changed[kind], 20) << kind;
}

// Some of the devices that share a batch have no sample of it then, and none to give away.
TEST(Moves, FitTheProblemWhereTheBatchIsSmallerThanTheCluster) {
  for (const std::int64_t batch : {1, 2, 3, 5, 7}) {
    const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", batch);
    const MoveMaker maker(*problem);
    Rng rng(3);
    ThreadPool pool(1);
    oracle::SimulatedOracle simulator(*problem, pool);
    BatchEvaluator evaluator(simulator);
    for (const decide::Strategy& start : {even_all_reduce(*problem), proportional_ps(*problem)}) {
      Incumbent from{start, evaluator.evaluate(start)};
      for (int i = 0; i < 500; ++i) {
        const auto kind = static_cast<MoveKind>(i % kMoveKindCount);
        const decide::Strategy next =
            in_one_spelling(apply(from.strategy, maker.propose(from, kind, rng)));
        ASSERT_NO_THROW(decide::check_strategy(*problem, next, "move")) << batch;
        if (i % 7 == 6) from = {next, evaluator.evaluate(next)};
        if (i % 50 == 49) from = {start, evaluator.evaluate(start)};
      }
    }
  }
}

TEST(LocalSearch, ImprovesAndNeverReturnsWorseThanItsStart) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 192);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  const decide::Strategy start = even_ps(*problem);
  const Evaluation before = evaluator.evaluate(start).evaluation;
  Rng rng(1);
  const SearchResult found = local_search(evaluator, start, rng, {.evaluations = 120});
  EXPECT_LT(static_cast<double>(found.evaluation.step), 0.8 * static_cast<double>(before.step));
  EXPECT_EQ(evaluator.evaluate(found.strategy).evaluation.step, found.evaluation.step);
  EXPECT_LE(evaluator.evaluations(), 121);
}

TEST(LocalSearch, OfGroupsTogetherSimulatesOneDeviceOfEachClass) {
  const auto problem = load_test_problem("vgg19", "mixed-64gpu", 1536);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  const decide::Strategy start = even_all_reduce(*problem);
  const auto tasks_of_a_plan = [&](bool together) {
    BatchEvaluator evaluator(simulator);
    Rng rng(1);
    local_search(evaluator, start, rng, {.evaluations = 100, .together = together});
    return evaluator.tasks() / static_cast<std::size_t>(evaluator.evaluations());
  };
  const std::size_t together = tasks_of_a_plan(true);
  EXPECT_LT(3 * together, tasks_of_a_plan(false));
  // It ends within a round of so many tasks.
  BatchEvaluator evaluator(simulator, {.tasks = 10 * together});
  Rng rng(1);
  local_search(evaluator, start, rng, {.evaluations = 100, .together = true});
  EXPECT_LT(evaluator.evaluations(), 40);
}

TEST(Portfolio, MovesGroupsTogetherWherePlansAreCostly) {
  const auto problem = load_test_problem("bert_large24-tiny", "mixed-512gpu", 1024);
  ASSERT_TRUE(evaluations_are_costly(*problem));
  ThreadPool pool(2);
  const auto plan = [&](Part without) {
    oracle::SimulatedOracle oracle(*problem, pool);
    PlannerContext context{.oracle = oracle, .rng = Rng(0), .budget = {}};
    return best_plan(context, {.without = without});
  };
  const PlannerResult with = plan(Part::kNothing), without = plan(Part::kTogether);
  EXPECT_GT(with.evaluations, without.evaluations);
  EXPECT_LE(with.evaluation.step, without.evaluation.step);
}

TEST(MemoryFill, PutsEveryGroupOfATemplateInOrderOnItsBlocks) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 48);
  const auto groups = space::summarize_groups(*problem);
  IdVector<DeviceId, double> budget(8, 8e9);
  const BlockTemplate halves{.blocks = {{DeviceId(0), DeviceId(1)}, {DeviceId(6), DeviceId(7)}}};
  // Two devices of 8 GB on each side hold the parameters and saved activations of a half or not;
  // with unlimited memory the first block takes all.
  IdVector<DeviceId, double> unlimited(8, 1e15);
  BlockTemplate first = halves;
  first.fill_first = true;
  const auto all = fill_blocks(*problem, groups, first, unlimited);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->strategy.units.size(), problem->grouping.count());
  for (const auto& unit : all->strategy.units) {
    ASSERT_EQ(unit.replicas.front().device, DeviceId(0));
  }
  // Filled alike, both blocks are used, the first one first, and never again after the second.
  const auto both = fill_blocks(*problem, groups, halves, unlimited);
  ASSERT_TRUE(both);
  bool second = false, used_first = false;
  for (const auto& unit : both->strategy.units) {
    const bool in_first = unit.replicas.front().device == DeviceId(0);
    used_first |= in_first;
    ASSERT_FALSE(second && in_first);
    second |= !in_first;
  }
  EXPECT_TRUE(second && used_first);
  // Nothing fits in nothing.
  EXPECT_FALSE(fill_blocks(*problem, groups, halves, IdVector<DeviceId, double>(8, 1e6)));
}

// No baseline fits BERT-large at twice the paper's batch size; the portfolio's plan does.
TEST(Portfolio, FindsAFeasiblePlanWhereNoBaselineFits) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 96);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  PlannerContext context{.oracle = simulator, .rng = Rng(0)};
  context.budget.evaluations = 60;
  const PlannerResult result = best_plan(context);
  for (const auto& baseline : result.baselines) {
    EXPECT_EQ(baseline.evaluation.feasible, baseline.name == "accumulate") << baseline.name;
  }
  // What is done by hand there is one of the bars then.
  EXPECT_EQ(result.baselines.back().name, "accumulate");
  EXPECT_TRUE(result.evaluation.feasible);
  EXPECT_FALSE(better(result.baselines.back().evaluation, result.evaluation));
}

TEST(Portfolio, IsNeverWorseThanABaselineAndGoesOnFromWhatIsGiven) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 192);
  ThreadPool pool(2);
  for (std::int64_t evaluations : {1, 20, 60}) {
    oracle::SimulatedOracle simulator(*problem, pool);
    PlannerContext context{.oracle = simulator, .rng = Rng(5)};
    context.budget.evaluations = evaluations;
    const PlannerResult result = best_plan(context);
    ASSERT_EQ(result.baselines.size(), 6u);
    for (const auto& baseline : result.baselines) {
      EXPECT_FALSE(better(baseline.evaluation, result.evaluation)) << baseline.name;
    }
  }
  // What is given and already good is where the search begins.
  oracle::SimulatedOracle first_oracle(*problem, pool);
  PlannerContext first{.oracle = first_oracle, .rng = Rng(5)};
  first.budget.evaluations = 200;
  const PlannerResult good = best_plan(first);
  oracle::SimulatedOracle second_oracle(*problem, pool);
  PlannerContext second{.oracle = second_oracle, .rng = Rng(5)};
  second.budget.evaluations = 40;
  const PlannerResult from_good =
      best_plan(second, {.given = {good.strategy}, .given_by = "policy"});
  EXPECT_FALSE(better(good.evaluation, from_good.evaluation));
  EXPECT_TRUE(from_good.found_by.starts_with("policy"));
}

// With its micro-batches and turns.
TEST(Portfolio, GoesOnFromAPipelineThatIsGiven) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 24);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  PlannerContext first{.oracle = simulator, .rng = Rng(5)};
  first.budget.evaluations = 120;
  const PlannerResult good = best_plan(first);
  ASSERT_GT(good.strategy.micro_batches, 1);
  PlannerContext second{.oracle = simulator, .rng = Rng(6)};
  second.budget.evaluations = 60;
  const PlannerResult from_good =
      best_plan(second, {.pipelines = 1, .given = {good.strategy}, .given_by = "policy"});
  EXPECT_FALSE(better(good.evaluation, from_good.evaluation));
  EXPECT_TRUE(from_good.found_by.starts_with("policy")) << from_good.found_by;
}

// Where a plan takes long to simulate, climbing would get to few all-reduces by chance only.
TEST(Portfolio, TriesLargeBucketsOnHundredsOfDevices) {
  const auto problem = load_test_problem("vgg19", "mixed-512gpu", 24576);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  PlannerContext context{.oracle = simulator, .rng = Rng(0)};
  context.budget.evaluations = 20;
  const PlannerResult result = best_plan(context);
  EXPECT_EQ(result.strategy.bucket_bytes, Bytes{256} << 20);
  EXPECT_THAT(result.found_by, testing::HasSubstr(" + buckets"));
}

}  // namespace
}  // namespace heterog::search
