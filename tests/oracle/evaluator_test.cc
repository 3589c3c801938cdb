// Reward, the order of evaluations, and the batch evaluator's memory and determinism.
#include "oracle/evaluator.h"

#include <gtest/gtest.h>

#include "oracle/batch_evaluator.h"
#include "oracle/simulated_oracle.h"
#include "search/answers/better_order.h"
#include "search/problems.h"
#include "search/starts/baselines.h"
#include "support/wide_cluster.h"

namespace heterog::oracle {
namespace {

using search::even_all_reduce;
using search::even_ps;
using search::horovod;
using search::load_test_problem;
using search::single_device;

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

// The last of 1,024 devices computes, and keeps what it computes, alone.
// 100 bytes too many on one device, 30 on another; a third has a byte left.
TEST(Judge, AddsUpWhatIsAboveEachMemory) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-4gpu", 16);
  IdVector<DeviceId, Bytes> peaks(4, 0);
  const auto memory = [&](std::size_t device) {
    return problem->cluster->device(DeviceId(device)).memory_bytes;
  };
  peaks[DeviceId(0)] = memory(0) + 100;
  peaks[DeviceId(2)] = memory(2) + 30;
  peaks[DeviceId(3)] = memory(3) - 1;
  const Measured over = judge(*problem, 250'000'000, peaks);
  EXPECT_FALSE(over.evaluation.feasible);
  EXPECT_EQ(over.evaluation.missing_bytes, 130);
  EXPECT_DOUBLE_EQ(over.evaluation.reward, -5);
  EXPECT_EQ(over.peak_bytes, peaks);
  peaks[DeviceId(0)] = memory(0);
  peaks[DeviceId(2)] = 0;
  const Measured fits = judge(*problem, 250'000'000, peaks);
  EXPECT_TRUE(fits.evaluation.feasible);
  EXPECT_EQ(fits.evaluation.missing_bytes, 0);
  EXPECT_DOUBLE_EQ(fits.evaluation.reward, -0.5);
}

TEST(Evaluator, RunsWhatDevice1023AloneIsGiven) {
  const auto problem = support::wide_problem();
  const DeviceId last(support::kWideDevices - 1);
  const decide::Strategy strategy = single_device(*problem, last);
  const compiler::Plan plan = compiler::compile(*problem, strategy);
  const sim::SimResult result = sim::simulate(plan, strategy.order);
  Evaluator evaluator(*problem);
  const Measured measured = evaluator.measure(strategy);
  EXPECT_EQ(measured.evaluation.step, result.step);
  for (DeviceId device : problem->cluster->device_ids()) {
    EXPECT_EQ(result.device_busy[device] > 0, device == last) << device.value();
    const Bytes reserve = problem->cluster->type_of(device).reserve_bytes;
    EXPECT_EQ(measured.peak_bytes[device] > reserve, device == last) << device.value();
  }
}

TEST(BatchEvaluator, EvaluatesRepeatsOnceAndEqualsTheEvaluator) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  const std::vector<decide::Strategy> strategies = {even_ps(*problem), even_all_reduce(*problem),
                                                    even_ps(*problem)};
  Evaluator plain(*problem);
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    SimulatedOracle simulator(*problem, pool);
    BatchEvaluator batch(simulator);
    const std::vector<Measured> measured = batch.evaluate(strategies);
    EXPECT_EQ(batch.evaluations(), 2);
    batch.evaluate(strategies);
    EXPECT_EQ(batch.evaluations(), 2);
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      const Measured alone = plain.measure(strategies[i]);
      EXPECT_EQ(measured[i].evaluation.step, alone.evaluation.step);
      EXPECT_EQ(measured[i].peak_bytes, alone.peak_bytes);
    }
  }
}

TEST(BatchEvaluator, DropsAndCountsCandidatesThatAreRefused) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  decide::Strategy broken = even_ps(*problem);
  broken.units[UnitId(3)].replicas.clear();
  const std::vector<decide::Strategy> strategies = {even_ps(*problem), broken,
                                                    even_all_reduce(*problem)};
  Evaluator plain(*problem);
  const Nanoseconds expected = plain.evaluate(strategies[2]).step;
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    SimulatedOracle simulator(*problem, pool);
    BatchEvaluator batch(simulator);
    const std::vector<Measured> measured = batch.evaluate(strategies);
    EXPECT_EQ(batch.evaluations(), 3);
    EXPECT_EQ(batch.refused(), 1);
    EXPECT_EQ(measured[2].evaluation.step, expected);
    EXPECT_FALSE(measured[1].evaluation.feasible);
    // Worse than what does not fit in memory, whatever that lacks.
    const Evaluation lacks{.step = 1, .missing_bytes = Bytes{1} << 50};
    EXPECT_TRUE(better(lacks, measured[1].evaluation));
    EXPECT_EQ(batch.evaluate(strategies)[0].evaluation.step, measured[0].evaluation.step);
    EXPECT_EQ(batch.evaluations(), 3);  // and is not asked about again
    EXPECT_EQ(batch.refused(), 1);
    EXPECT_THROW(batch.evaluate(broken), Error);  // by itself it is no candidate
  }
}

// Not what a strategy is to blame for.
TEST(BatchEvaluator, AFailureReachesTheCallerAndLeavesNoResult) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  bool stopped = true;
  ThreadPool pool(2);
  SimulatedOracle simulator(*problem, pool, {}, [&] { return stopped; });
  BatchEvaluator batch(simulator);
  const std::vector<decide::Strategy> strategies = {even_ps(*problem), even_all_reduce(*problem)};
  EXPECT_THROW(batch.evaluate(strategies), Error);
  EXPECT_EQ(batch.evaluations(), 0);
  EXPECT_EQ(batch.refused(), 0);
  stopped = false;
  EXPECT_GT(batch.evaluate(strategies)[0].evaluation.step, 0);
  EXPECT_EQ(batch.evaluations(), 2);
}

// What comes out is a strategy like any other: compiled and simulated anew it takes what was said,
// with the same decisions; from a bad order it is better, and on any number of threads the same.
TEST(BetterOrder, HoldsWhenItIsMeasuredAnew) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 192);
  int improved = 0, in_rounds = 0;
  for (const decide::Strategy& start : {even_ps(*problem), even_all_reduce(*problem),
                                        search::proportional_ps(*problem), horovod(*problem)}) {
    Evaluator evaluator(*problem);
    const Evaluation before = evaluator.evaluate(start);
    EXPECT_FALSE(search::better_order(evaluator, start, 0));
    const auto found = search::better_order(evaluator, start, 4);
    if (!found) continue;
    ++improved;
    in_rounds += found->strategy.order_rounds > 0;
    EXPECT_TRUE(found->strategy.priorities.empty());
    EXPECT_TRUE(better(found->evaluation, before));
    EXPECT_EQ(found->strategy.units, start.units);
    EXPECT_EQ(found->strategy.bucket_bytes, start.bucket_bytes);
    const Measured again = evaluator.measure(found->strategy);
    EXPECT_EQ(again.evaluation.step, found->evaluation.step);
    for (int threads : {1, 2}) {
      ThreadPool pool(threads);
      SimulatedOracle oracle(*problem, pool);
      const auto same = search::better_order(oracle, start, 4);
      ASSERT_TRUE(same);
      EXPECT_EQ(same->strategy, found->strategy);
    }
    const auto more = search::better_order(evaluator, found->strategy, 8);
    EXPECT_TRUE(!more || better(more->evaluation, found->evaluation));
  }
  EXPECT_GE(improved, 3);
  EXPECT_GE(in_rounds, 2);
}

// Round by round in one go is each round by itself; rounds that change nothing any more are as the
// last.
TEST(MeasureRounds, AreTheStrategiesOfEachRound) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-4gpu", 16);
  Evaluator evaluator(*problem);
  int differ = 0;
  for (decide::Strategy strategy : {even_ps(*problem), horovod(*problem)}) {
    strategy.order_rounds = 5;
    const std::vector<Measured> rounds = evaluator.measure_rounds(strategy);
    ASSERT_GE(rounds.size(), 1u);
    ASSERT_LE(rounds.size(), 6u);
    const std::vector<Measured> by_themselves = evaluator.Oracle::measure_rounds(strategy);
    ASSERT_EQ(by_themselves.size(), 6u);
    for (std::size_t i = 0; i < by_themselves.size(); ++i) {
      const Measured& one = rounds[std::min(i, rounds.size() - 1)];
      EXPECT_EQ(by_themselves[i].evaluation.step, one.evaluation.step);
      EXPECT_EQ(by_themselves[i].peak_bytes, one.peak_bytes);
      EXPECT_EQ(by_themselves[i].busy, one.busy);
      differ += by_themselves[i].evaluation.step != by_themselves[0].evaluation.step;
    }
  }
  EXPECT_GT(differ, 0);
}

TEST(BatchEvaluator, TellsBucketsOrdersPrioritiesAndMicroBatchesApart) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-8gpu", 16);
  ThreadPool pool(1);
  SimulatedOracle simulator(*problem, pool);
  BatchEvaluator batch(simulator);
  decide::Strategy fifo = even_all_reduce(*problem);
  fifo.order = decide::OrderPolicy::kFifo;
  decide::Strategy first = even_all_reduce(*problem), last = first, apart = first;
  first.order = last.order = decide::OrderPolicy::kPriority;
  first.priorities = {{problem->folded->ops.front(), 0, 1}};
  last.priorities = {{problem->folded->ops.front(), 0, -1}};
  apart.micro_batches = 2;
  decide::Strategy in_turn = apart, pattern = apart, strict = apart, beside = apart;
  decide::Strategy served_in_turn = apart, sharded = apart, gathered = apart;
  decide::Strategy rounds = fifo;
  rounds.order_rounds = 1;
  in_turn.units[UnitId(0)].in_turn = true;
  served_in_turn.units[UnitId(0)].in_turn = true;
  served_in_turn.units[UnitId(0)].sync = decide::SyncMethod::kParameterServer;
  sharded.units[UnitId(0)].sync = decide::SyncMethod::kSharded;
  gathered.units[UnitId(0)].sync = decide::SyncMethod::kGathered;
  pattern.pattern = strict.pattern = decide::Pattern::kForwardFirst;
  pattern.order = decide::OrderPolicy::kPriority;
  strict.strict = true;
  beside.pipeline_of.assign(problem->cluster->device_count(), 0);
  batch.evaluate(std::vector{even_all_reduce(*problem), horovod(*problem), fifo, first, last, apart,
                             in_turn, pattern, strict, beside, rounds, served_in_turn, sharded,
                             gathered});
  EXPECT_EQ(batch.evaluations(), 14);
}

}  // namespace
}  // namespace heterog::oracle
