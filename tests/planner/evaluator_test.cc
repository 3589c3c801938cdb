// Reward, the order of evaluations, and the batch evaluator's memory and determinism.
#include "planner/evaluator.h"

#include <gtest/gtest.h>

#include "planner/baselines.h"
#include "planner/batch_evaluator.h"
#include "planner/problems.h"
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

// The last of 1,024 devices computes, and keeps what it computes, alone.
TEST(Evaluator, RunsWhatDevice1023AloneIsGiven) {
  const auto problem = support::wide_problem();
  const DeviceId last(support::kWideDevices - 1);
  const compiler::Strategy strategy = single_device(*problem, last);
  const compiler::Plan plan = compiler::compile(*problem, strategy);
  const sim::SimResult result = sim::simulate(plan, strategy.order);
  Evaluator evaluator(*problem);
  EXPECT_EQ(evaluator.evaluate(strategy).step, result.step);
  for (DeviceId device : problem->cluster->device_ids()) {
    EXPECT_EQ(result.device_busy[device] > 0, device == last) << device.value();
    const Bytes reserve = problem->cluster->type_of(device).reserve_bytes;
    EXPECT_EQ(evaluator.last_peaks()[device] > reserve, device == last) << device.value();
  }
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
