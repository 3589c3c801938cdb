// Annealing, halving, and how both keep to their part of a budget.
#include "search/engines/annealing.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "oracle/simulated_oracle.h"
#include "search/engines/halving.h"
#include "search/problems.h"
#include "search/registry.h"
#include "search/starts/baselines.h"
#include "search/starts/starts.h"

namespace heterog::search {
namespace {

class AnnealingTest : public testing::Test {
 protected:
  SearchResult annealed(int threads, const AnnealingOptions& options,
                        std::int64_t* used = nullptr) {
    ThreadPool pool(threads);
    oracle::SimulatedOracle simulator(*problem_, pool);
    BatchEvaluator evaluator(simulator);
    Rng rng(4);
    SearchResult found = anneal(evaluator, even_ps(*problem_), rng, options);
    EXPECT_EQ(evaluator.evaluate(found.strategy).evaluation.step, found.evaluation.step);
    if (used) *used = evaluator.evaluations();
    return found;
  }

  const std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("vgg19", "heterog-8gpu", 192);
};

TEST_F(AnnealingTest, ImprovesWithinItsEvaluationsWhateverTheThreads) {
  std::int64_t used = 0;
  const SearchResult one = annealed(1, {.evaluations = 200}, &used);
  EXPECT_LE(used, 201);
  EXPECT_GT(used, 190);
  ThreadPool pool(1);
  oracle::SimulatedOracle simulator(*problem_, pool);
  BatchEvaluator evaluator(simulator);
  const Evaluation start = evaluator.evaluate(even_ps(*problem_)).evaluation;
  EXPECT_LT(static_cast<double>(one.evaluation.step), 0.6 * static_cast<double>(start.step));
  const SearchResult two = annealed(2, {.evaluations = 200});
  EXPECT_EQ(one.strategy, two.strategy);
  EXPECT_EQ(one.evaluation.step, two.evaluation.step);
}

// So hot that nothing is refused, it walks at random: what it gives back is the best that it saw.
TEST_F(AnnealingTest, GivesTheBestThatItSawHoweverHot) {
  for (const double hot : {1e-9, 1.0}) {
    std::int64_t asked = 0;
    const SearchResult found = annealed(1, {.evaluations = 100, .hot = hot, .cold = hot}, &asked);
    EXPECT_GT(asked, 50);
    ThreadPool pool(1);
    oracle::SimulatedOracle simulator(*problem_, pool);
    BatchEvaluator evaluator(simulator);
    EXPECT_FALSE(better(evaluator.evaluate(even_ps(*problem_)).evaluation, found.evaluation));
  }
  // Cold it is a descent; at this heat it takes what is worse, and ends elsewhere.
  EXPECT_NE(annealed(1, {.evaluations = 100, .hot = 1e-9, .cold = 1e-9}).strategy,
            annealed(1, {.evaluations = 100, .hot = 1, .cold = 1}).strategy);
}

TEST_F(AnnealingTest, EndsWhereItsPartOfTheBudgetDoes) {
  ThreadPool pool(1);
  oracle::SimulatedOracle simulator(*problem_, pool);
  BatchEvaluator evaluator(simulator, {.evaluations = 400});
  Rng rng(1);
  anneal(evaluator, even_ps(*problem_), rng, {.evaluations = kUnbounded, .until = 0.25});
  EXPECT_GE(evaluator.evaluations(), 100);
  EXPECT_LT(evaluator.evaluations(), 110);
  EXPECT_NEAR(evaluator.used(), 0.25, 0.02);
  // Of time, the same: a clock that goes on by a hundredth whenever it is asked.
  double clock = 0;
  BatchEvaluator timed(simulator, {.time_used = [&] { return clock += 0.01; }});
  anneal(timed, even_ps(*problem_), rng, {.evaluations = kUnbounded, .until = 0.5});
  EXPECT_NEAR(clock, 0.5, 0.05);
}

TEST_F(AnnealingTest, HalvingNeverLosesItsBestStartAndKeepsToItsPart) {
  ThreadPool pool(1);
  oracle::SimulatedOracle simulator(*problem_, pool);
  BatchEvaluator evaluator(simulator, {.evaluations = 300});
  std::vector<Start> starts;
  const std::vector<decide::Strategy> strategies = {
      even_ps(*problem_), proportional_all_reduce(*problem_), horovod(*problem_),
      single_device(*problem_, DeviceId(0))};
  for (const decide::Strategy& strategy : strategies) {
    starts.push_back({{strategy, evaluator.evaluate(strategy).evaluation}, "start"});
  }
  const Evaluation before = starts[1].tried.evaluation;  // cp-ar, the best of these
  Rng rng(2);
  const std::vector<Start> after = halve(evaluator, starts, rng, 0.5);
  ASSERT_EQ(after.size(), 4u);
  EXPECT_TRUE(better(after[0].tried.evaluation, before));
  EXPECT_EQ(after[0].name, "start + local-search");
  for (std::size_t i = 1; i < after.size(); ++i) {
    EXPECT_FALSE(better(after[i].tried.evaluation, after[i - 1].tried.evaluation));
  }
  EXPECT_NEAR(evaluator.used(), 0.5, 0.03);
  // Every start was climbed from, the worst one too.
  int climbed = 0;
  for (const Start& start : after) climbed += start.name == "start + local-search";
  EXPECT_GE(climbed, 3);
  EXPECT_TRUE(halve(evaluator, {}, rng, 1).empty());
}

TEST(KeepFirst, StartsOfTwoOrigins) {
  const auto kept = [](const std::vector<std::string>& names, std::size_t most) {
    std::vector<Start> starts;
    for (const std::string& name : names) starts.push_back({{}, name});
    keep_first(starts, most);
    std::string all;
    for (const Start& start : starts) all += start.name + " ";
    return all;
  };
  EXPECT_EQ(kept({"a", "a", "b", "c"}, 2), "a b ");  // the best of the others, for the last of a
  EXPECT_EQ(kept({"a", "b", "b", "c"}, 2), "a b ");
  EXPECT_EQ(kept({"a", "a", "a", "a", "b"}, 3), "a a b ");
  EXPECT_EQ(kept({"a", "a", "a"}, 2), "a a ");  // there is no other
  EXPECT_EQ(kept({"a", "b"}, 1), "a ");         // the best is kept whatever comes
  EXPECT_EQ(kept({"a", "a"}, 3), "a a ");
  EXPECT_EQ(kept({}, 2), "");
}

// From the optimum of its temperature it ends after its patience, and not before.
TEST_F(AnnealingTest, EndsWhenItsPatienceDoes) {
  ThreadPool pool(1);
  oracle::SimulatedOracle simulator(*problem_, pool);
  BatchEvaluator evaluator(simulator, {.evaluations = 400});
  Rng rng(4);
  const SearchResult best = anneal(evaluator, even_ps(*problem_), rng, {.evaluations = 300});
  BatchEvaluator again(simulator, {.evaluations = 400});
  anneal(again, best.strategy, rng,
         {.evaluations = kUnbounded, .hot = 10, .cold = 10, .patience = 0.1});
  EXPECT_GE(again.evaluations(), 40);
  EXPECT_LE(again.evaluations(), 120);
}

// Never worse than where it begins, better than chance, and it begins anew.
TEST_F(AnnealingTest, FlexflowBeginsAnewWhereItStandsStill) {
  const Registry registry(builtin_planners());
  const auto found_by = [&](const std::string& request, std::int64_t evaluations) {
    ThreadPool pool(1);
    oracle::SimulatedOracle simulator(*problem_, pool);
    PlannerContext context{.oracle = simulator, .rng = Rng(3)};
    context.budget.evaluations = evaluations;
    return registry.make(request, *problem_->cluster)->plan(context);
  };
  const PlannerResult one = found_by("flexflow", 300);
  EXPECT_EQ(one.evaluations, 300);
  EXPECT_TRUE(better(one.evaluation, found_by("ev-ar:order=rank", 1).evaluation));
  EXPECT_TRUE(better(one.evaluation, found_by("random", 300).evaluation));
  EXPECT_EQ(found_by("flexflow", 1).evaluation.step,
            found_by("ev-ar:order=rank", 1).evaluation.step);
  // So hot that it walks at random, gains are soon rare.
  EXPECT_NE(found_by("flexflow:beta=1", 300).found_by, "flexflow: 1 chain");
}

}  // namespace
}  // namespace heterog::search
