// What provably takes too long is given up, and what is not is simulated as ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/rng.h"
#include "compiler/serving_bound.h"
#include "decide/layout.h"
#include "oracle/batch_evaluator.h"
#include "oracle/best_seen.h"
#include "oracle/evaluator.h"
#include "oracle/simulated_oracle.h"
#include "search/problems.h"
#include "search/starts/balanced_servers.h"
#include "search/starts/baselines.h"

namespace heterog::oracle {
namespace {

using decide::Strategy;
using search::even_all_reduce;
using search::even_ps;

Nanoseconds bound_of(const cost::Problem& problem, const Strategy& strategy) {
  return compiler::serving_bound(problem, decide::lay_out(problem, strategy));
}

class MeasureWithin : public testing::Test {
 protected:
  const std::unique_ptr<const cost::Problem> problem_ =
      search::load_test_problem("vgg19", "mixed-64gpu", 256);
  const Strategy served_ = even_ps(*problem_), reduced_ = even_all_reduce(*problem_);
};

// Most of what a step with servers takes on a network: one parameter's pushes and its pulls.
TEST_F(MeasureWithin, TheBoundIsNotFarBelowTheStep) {
  Evaluator evaluator(*problem_);
  const Nanoseconds step = evaluator.evaluate(served_).step;
  EXPECT_LE(bound_of(*problem_, served_), step);
  EXPECT_GE(2 * bound_of(*problem_, served_), step);
  // With rows on several servers what all of them put on one link counts.
  const Strategy parts = search::partitioned_ps(*problem_, search::ServerParts::kBytes);
  const Nanoseconds of_parts = evaluator.evaluate(parts).step;
  EXPECT_LE(bound_of(*problem_, parts), of_parts);
  EXPECT_GE(4 * bound_of(*problem_, parts), of_parts);
  EXPECT_EQ(bound_of(*problem_, reduced_), 0);
}

// Servers of whole parameters and of rows, tied parameters, tables of words, parts of the devices.
TEST(ServingBound, IsNoStepsOfRandomServers) {
  constexpr std::array kModels = {"vgg19", "lstm_lm", "bert_large24", "mobilenet_v2", "ncf"};
  constexpr std::array kClusters = {"heterog-8gpu-10gbe", "heterog-12gpu"};
  Rng rng(20261129);
  int cases = 0, telling = 0;
  for (const char* model : kModels) {
    for (const char* cluster : kClusters) {
      const auto problem = search::load_test_problem(model, cluster, 48);
      Evaluator evaluator(*problem);
      for (int i = 0; i < 4; ++i) {
        Strategy strategy = even_ps(*problem);
        std::vector<decide::Replica> replicas;
        for (DeviceId device : problem->cluster->device_ids()) {
          if (rng.below(3) > 0) replicas.push_back({device, 1.0 + double(rng.below(3))});
        }
        if (replicas.size() < 2) continue;
        for (decide::UnitDecision& unit : strategy.units) {
          if (i > 0) unit.replicas = replicas;
          if (rng.below(4) == 0) unit.sync = decide::SyncMethod::kAllReduce;
        }
        if (i == 1) strategy = search::with_balanced_servers(*problem, strategy);
        if (i == 2) strategy = search::with_several_servers(*problem, strategy, /*of_all=*/false);
        if (i == 3) strategy.micro_batches = 2;
        const Nanoseconds step = evaluator.evaluate(strategy).step;
        const Nanoseconds bound = bound_of(*problem, strategy);
        EXPECT_LE(bound, step) << model << " on " << cluster << ", " << i;
        ++cases;
        telling += 4 * bound >= step;
      }
    }
  }
  EXPECT_GE(cases, 36);
  EXPECT_GE(3 * telling, cases);
}

TEST_F(MeasureWithin, GivesUpWhatIsLonger) {
  Evaluator evaluator(*problem_);
  const Nanoseconds bound = bound_of(*problem_, served_);
  const Measured whole = evaluator.measure(served_);
  const Measured given_up = evaluator.measure_within(served_, bound - 1);
  EXPECT_TRUE(given_up.given_up);
  EXPECT_EQ(given_up.evaluation.step, bound);
  const Measured measured = evaluator.measure_within(served_, bound);
  EXPECT_FALSE(measured.given_up);
  EXPECT_EQ(measured.evaluation.step, whole.evaluation.step);
  EXPECT_EQ(measured.peak_bytes, whole.peak_bytes);
}

TEST_F(MeasureWithin, WhatIsGivenUpIsNeverTheBest) {
  ThreadPool threads(2);
  SimulatedOracle simulator(*problem_, threads);
  BestSeen oracle(simulator);
  BatchEvaluator evaluator(oracle);
  evaluator.give_up_beyond(1);
  // Nothing is known that it could be longer than.
  const Evaluation served = evaluator.evaluate(served_).evaluation;
  EXPECT_TRUE(served.feasible);
  EXPECT_EQ(evaluator.given_up(), 0);
  const Evaluation reduced = evaluator.evaluate(reduced_).evaluation;
  ASSERT_LT(reduced.step, bound_of(*problem_, served_));
  Strategy other = served_;
  other.order = decide::OrderPolicy::kFifo;
  const Measured given_up = evaluator.evaluate(other);
  EXPECT_TRUE(given_up.given_up);
  EXPECT_TRUE(better(reduced, given_up.evaluation));
  EXPECT_TRUE(better(served, given_up.evaluation));
  EXPECT_EQ(evaluator.given_up(), 1);
  EXPECT_EQ(evaluator.evaluations(), 3);
  EXPECT_EQ(evaluator.refused(), 0);
  // Nobody else takes it for a plan, and what was simulated stays known.
  EXPECT_EQ(oracle.evaluations(), 2);
  EXPECT_EQ(oracle.best()->evaluation.step, reduced.step);
  EXPECT_EQ(evaluator.evaluate(served_).evaluation.step, served.step);
}

TEST_F(MeasureWithin, TasksAreABudget) {
  ThreadPool threads(1);
  SimulatedOracle oracle(*problem_, threads);
  BatchEvaluator evaluator(oracle);
  const std::size_t tasks = evaluator.evaluate(served_).tasks;
  ASSERT_GT(tasks, 0u);
  evaluator.set_budget({.tasks = 2 * tasks - 1});
  EXPECT_EQ(evaluator.used(), 0);
  Strategy other = served_;
  other.order = decide::OrderPolicy::kFifo;
  evaluator.evaluate(other);
  EXPECT_GT(evaluator.used(), 0.5);
  EXPECT_FALSE(evaluator.spent());
  other.order = decide::OrderPolicy::kRankQueued;
  evaluator.evaluate(other);
  EXPECT_TRUE(evaluator.spent());
}

}  // namespace
}  // namespace heterog::oracle
