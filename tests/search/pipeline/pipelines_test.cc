// Which pipelines are simulated, and which are given up by what is known of them.
#include "search/pipeline/pipelines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "decide/decisions.h"
#include "oracle/evaluator.h"
#include "oracle/simulated_oracle.h"
#include "search/answers/better_order.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

// What is given up because its busiest stage alone takes too long could not have been faster.
TEST(Pipelines, NoStepIsShorterThanItsBusiestStage) {
  for (const char* model : {"bert_large24", "gnmt4", "vgg19"}) {
    const auto problem = load_test_problem(model, "heterog-4gpu", 24);
    oracle::Evaluator evaluator(*problem);
    const CutPool pool = promising_pool(evaluator, {});
    std::size_t simulated = 0;
    for (std::size_t i = 0; i < pool.found.size(); i += 19) {
      const Cut& cut = pool.found[i];
      if (pool.micro_batches[cut.costs] > 8) continue;
      const decide::Strategy strategy =
          pool.strategy(*problem, cut, {.strict = pool.strictness.front()});
      const double step = to_seconds(evaluator.evaluate(strategy).step);
      EXPECT_GE(step, cut.busiest) << model << ", " << cut.stages.size() << " stages, "
                                   << pool.micro_batches[cut.costs] << " micro-batches";
      EXPECT_GE(cut.seconds, cut.busiest);
      ++simulated;
    }
    EXPECT_GE(simulated, 3u) << model;
  }
}

// Lines and micro-batches are shared out over the threads of an oracle that has some.
TEST(Pipelines, CutsDoNotDependOnThreads) {
  const auto problem = load_test_problem("gnmt4", "heterog-4gpu", 24);
  oracle::Evaluator alone(*problem);
  ThreadPool threads(3);
  oracle::SimulatedOracle shared(*problem, threads);
  const CutPool one = promising_pool(alone, {}), other = promising_pool(shared, {});
  ASSERT_GT(one.found.size(), 10u);
  ASSERT_EQ(one.found.size(), other.found.size());
  for (std::size_t i = 0; i < one.found.size(); ++i) {
    const Cut &a = one.found[i], &b = other.found[i];
    EXPECT_EQ(a.stages, b.stages);
    EXPECT_EQ(std::tuple(a.seconds, a.busiest, a.costs, a.line, a.recompute),
              std::tuple(b.seconds, b.busiest, b.costs, b.line, b.recompute));
  }
}

// No plain order comes near one forward and one backward pass in turns; what a better order gains
// over that is found from there, and is most of what such a pipeline waits.
TEST(Pipelines, ABetterOrderGoesOnFromTheirOwn) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 48);
  oracle::Evaluator evaluator(*problem);
  const CutPool pool = promising_pool(evaluator, {});
  const auto cut = std::ranges::find_if(
      pool.found, [&](const Cut& one) { return pool.micro_batches[one.costs] == 16; });
  ASSERT_NE(cut, pool.found.end());
  const decide::Strategy own = pool.strategy(*problem, *cut, {.strict = false});
  const double before = to_seconds(evaluator.evaluate(own).step);
  for (decide::OrderPolicy order : decide::kSearchedOrders) {
    decide::Strategy plain = own;
    decide::set_plain_order(plain, order);
    EXPECT_GT(to_seconds(evaluator.evaluate(plain).step), 1.1 * before);
  }
  const auto found = better_order(evaluator, own, 4);
  ASSERT_TRUE(found);
  EXPECT_LT(to_seconds(found->evaluation.step), 0.9 * before);
}

TEST(Pipelines, OthersOfALineAreLookedAtUnlessTheyAreHopeless) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 48);
  oracle::Evaluator evaluator(*problem);
  const CutPool pool = promising_pool(evaluator, {});
  const std::vector<const Cut*> known = {&pool.found.front()};
  const auto all = pool.alike(known, known, 1e30, {});
  ASSERT_GE(all.size(), 4u);
  std::vector<double> busiest;
  for (const Cut* cut : all) {
    EXPECT_EQ(cut->line, known.front()->line);
    EXPECT_EQ(cut->stages.size(), known.front()->stages.size());
    EXPECT_LE(cut->seconds, 1.5 * known.front()->seconds);
    busiest.push_back(cut->busiest);
  }
  const auto of_the_line = std::ranges::count_if(pool.found, [&](const Cut& cut) {
    return cut.line == known.front()->line && cut.stages.size() == known.front()->stages.size();
  });
  EXPECT_LT(all.size() + 1, static_cast<std::size_t>(of_the_line));
  std::ranges::sort(busiest);
  const double middle = busiest[busiest.size() / 2];
  const auto fewer = pool.alike(known, known, middle, {});
  EXPECT_EQ(fewer.size(),
            static_cast<std::size_t>(std::ranges::upper_bound(busiest, middle) - busiest.begin()));
  EXPECT_LT(fewer.size(), all.size());
}

// Where plans take long to simulate: the best of each number of micro-batches.
TEST(Pipelines, AFewAreOfOneNumberOfMicroBatchesEach) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 48);
  oracle::Evaluator evaluator(*problem);
  const CutPool pool = promising_pool(evaluator, {});
  const PipelineLimits limits{.alike = 1, .by_parts = true, .least_parts = 8};
  const std::vector<const Cut*> chosen = pool.choose(limits);
  std::set<std::int64_t> parts;
  for (const Cut* cut : chosen) parts.insert(pool.micro_batches[cut->costs]);
  ASSERT_GT(chosen.size(), 2u);
  EXPECT_EQ(parts.size(), chosen.size());
  EXPECT_GE(*parts.begin(), 8);
  EXPECT_EQ(chosen.front(), &*std::ranges::find_if(pool.found, [&](const Cut& cut) {
              return pool.micro_batches[cut.costs] >= 8;
            }));
  // Of few tasks each: those in more micro-batches have more.
  PipelineLimits small = limits;
  small.tasks_each = problem->folded->ops.size() * 8 * 3;
  const std::vector<const Cut*> fewer = pool.choose(small);
  EXPECT_LT(fewer.size(), chosen.size());
  for (const Cut* cut : fewer) EXPECT_LE(pool.micro_batches[cut->costs], 24);
}

// The best cut by estimate is not left out where its own micro-batches are too many.
TEST(Pipelines, TheBestOfTooManyTasksRunsInFewerMicroBatches) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 48);
  oracle::Evaluator evaluator(*problem);
  const CutPool pool = promising_pool(evaluator, {});
  const Cut& best = pool.found.front();
  ASSERT_GT(pool.parts_of(best), 16);
  PipelineLimits limits{.tasks_each = problem->folded->ops.size() * 12 * 2, .least_parts = 6};
  const std::vector<Cut> fewer = pool.in_fewer(limits);
  ASSERT_GT(fewer.size(), 1u);
  std::int64_t before = pool.parts_of(best);
  for (const Cut& cut : fewer) {
    EXPECT_EQ(cut.stages, best.stages);
    const decide::Strategy strategy = pool.strategy(*problem, cut, {});
    EXPECT_LT(strategy.micro_batches, before);
    EXPECT_GE(strategy.micro_batches, limits.least_parts);
    before = strategy.micro_batches;
  }
  limits.seconds = best.seconds / 2;
  EXPECT_TRUE(pool.in_fewer(limits).empty());
  EXPECT_TRUE(pool.in_fewer({}).empty());
}

// A table that the first layer and the last read has its gradient on the way in every micro-batch
// where these are apart. That is looked at second, of the best alone, and not where plans take
// long.
TEST(Pipelines, LayersOfOneParameterAreTogetherFirst) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-4gpu", 16);
  oracle::Evaluator evaluator(*problem);
  for (const bool few : {false, true}) {
    oracle::BatchEvaluator batch(evaluator);
    const TriedPipelines tried = try_pipelines(
        batch, {.count = 6, .by_parts = few, .improved = true, .all_patterns = false});
    ASSERT_FALSE(tried.all.empty());
    EXPECT_TRUE(tried.all.front().tied_together);
    const auto apart = std::ranges::count(tried.all, false, &TriedPipelines::One::tied_together);
    EXPECT_EQ(apart > 0, !few);
    EXPECT_LE(apart, 3);
  }
}

// What is shorter, together or apart, is what all turns are tried of; two are tried apart where
// these are far behind.
TEST(Pipelines, TurnsAreTriedWithLayersOfOneParameterAsThatIsShorter) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu-10gbe", 48);
  oracle::Evaluator evaluator(*problem);
  oracle::BatchEvaluator batch(evaluator);
  const TriedPipelines tried =
      try_pipelines(batch, {.count = 12, .improved = true, .all_patterns = true});
  std::size_t apart = 0, others = 0;
  for (const TriedPipelines::One& one : tried.all) {
    if (!one.tied_together) ++apart;
    if (one.strategy.pattern == decide::Pattern::kZeroBubble && !one.strategy.strict) continue;
    ++others;
    EXPECT_TRUE(one.tied_together);
  }
  EXPECT_GE(apart, 1u);
  EXPECT_LE(apart, 2u);
  // Folded pipelines are among the best, and go with no strict turns.
  EXPECT_FALSE(tried.folded.empty());
  EXPECT_EQ(batch.refused(), 0);
  EXPECT_GT(others, 3u);
}

// With gradients put off nothing fits, and what is shorter lacks more.
class NothingPutOffFits final : public oracle::Oracle {
 public:
  explicit NothingPutOffFits(oracle::Oracle& asked) : asked_(asked) {}
  std::vector<Measured> measure(std::span<const decide::Strategy> strategies) override {
    std::vector<Measured> all = asked_.measure(strategies);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (strategies[i].pattern != decide::Pattern::kZeroBubble) continue;
      const Nanoseconds step = all[i].evaluation.step;
      all[i].peak_bytes[DeviceId(0)] = Bytes{1} << 40;
      all[i].peak_bytes[DeviceId(0)] += (Bytes{1} << 60) / step;
      all[i] = oracle::judge(problem(), step, all[i].peak_bytes);
    }
    return all;
  }
  const cost::Problem& problem() const override { return asked_.problem(); }

 private:
  oracle::Oracle& asked_;
};

// One forward and one backward pass in turns keep fewer micro-batches: of the shortest steps they
// are tried, not of what lacks least.
TEST(Pipelines, WhatDoesNotFitIsTriedInTurnsThatKeepLess) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 24);
  oracle::Evaluator evaluator(*problem);
  NothingPutOffFits oracle(evaluator);
  BatchEvaluator batch(oracle);
  const TriedPipelines tried =
      try_pipelines(batch, {.count = 9, .improved = true, .all_patterns = false});
  const TriedPipelines::One* shortest = nullptr;
  for (const TriedPipelines::One& one : tried.all) {
    if (one.evaluation.feasible) continue;
    if (!shortest || one.evaluation.step < shortest->evaluation.step) shortest = &one;
  }
  ASSERT_NE(shortest, nullptr);
  const auto fits = std::ranges::find_if(tried.all, [&](const TriedPipelines::One& one) {
    return one.cut == shortest->cut && one.evaluation.feasible;
  });
  ASSERT_NE(fits, tried.all.end());
  EXPECT_EQ(fits->strategy.pattern, decide::Pattern::kOneForwardOneBackward);
  EXPECT_EQ(fits->tied_together, shortest->tied_together);
  // Once something fits, no other turns are looked at.
  for (const TriedPipelines::One& one : tried.all) {
    EXPECT_FALSE(one.strategy.strict);
    EXPECT_NE(one.strategy.pattern, decide::Pattern::kListed);
  }
}

// Running statistics are those of all micro-batches together, for which stages wait: steps take
// several times what is estimated, with any number of micro-batches.
TEST(Pipelines, WhatIsFarBehindTheBestIsGivenUp) {
  const auto problem = load_test_problem("resnet50", "heterog-4gpu", 64);
  oracle::Evaluator oracle(*problem);
  const CutPool pool = promising_pool(oracle, {});
  const double hopeful = pool.found[3].seconds;
  BatchEvaluator evaluator(oracle);
  const TriedPipelines tried = try_pipelines(evaluator, {.seconds = hopeful});
  ASSERT_FALSE(tried.all.empty());
  for (const TriedPipelines::One& one : tried.all)
    EXPECT_GT(to_seconds(one.evaluation.step), 2 * hopeful);
  const std::size_t chosen = pool.choose({.seconds = hopeful}).size();
  EXPECT_GE(tried.all.size(), chosen);
  EXPECT_LE(tried.all.size(), chosen + 6);  // and those that say how far estimates are off
}

// The paper's list has turns for all of a backward pass.
TEST(Pipelines, ThePapersFormPutsNoGradientsOff) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-4gpu", 16);
  const Registry registry(builtin_planners());
  oracle::Evaluator oracle(*problem);
  PlannerContext context{.oracle = oracle};
  const auto planner = registry.make("spp:form=paper,gradients=put-off", *problem->cluster);
  EXPECT_THROW(planner->plan(context), Error);
}

}  // namespace
}  // namespace heterog::search
