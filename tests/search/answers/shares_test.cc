// Shares for plain data parallelism: against every split there is, within memory, deterministic.
#include "search/answers/shares.h"

#include "search/answers/ddp_plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "oracle/simulated_oracle.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using decide::OrderPolicy;

std::int64_t sum(const Samples& samples) {
  return std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
}

SharesResult search(const cost::Problem& problem, int threads) {
  ThreadPool pool(threads);
  oracle::SimulatedOracle simulator(problem, pool);
  BatchEvaluator evaluator(simulator);
  return search_shares(evaluator);
}

// Every way to give the batch to the devices.
void every_split(std::int64_t left, std::size_t device, Samples& samples,
                 std::vector<Samples>& all) {
  if (device + 1 == samples.size()) {
    samples[DeviceId(device)] = left;
    all.push_back(samples);
    return;
  }
  for (std::int64_t n = 0; n <= left; ++n) {
    samples[DeviceId(device)] = n;
    every_split(left - n, device + 1, samples, all);
  }
}

Nanoseconds best_of_all(const cost::Problem& problem) {
  std::vector<Samples> splits;
  Samples samples(problem.cluster->device_count(), 0);
  every_split(problem.batch, 0, samples, splits);
  std::vector<decide::Strategy> strategies;
  for (const Samples& split : splits) {
    for (const OrderPolicy order : decide::kSearchedOrders) {
      for (const Bytes bucket : {Bytes{0}, decide::kDdpBucketBytes}) {
        strategies.push_back(shares_strategy(problem, split));
        strategies.back().order = order;
        strategies.back().bucket_bytes = bucket;
      }
    }
  }
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(problem, pool);
  BatchEvaluator evaluator(simulator);
  Nanoseconds best = 0;
  for (const Measured& measured : evaluator.evaluate(strategies)) {
    if (!measured.evaluation.feasible) continue;
    if (best == 0 || measured.evaluation.step < best) best = measured.evaluation.step;
  }
  return best;
}

// Small enough to try all: 41 splits over two devices, 286 and 165 over four.
TEST(Shares, AreTheBestThatThereAre) {
  for (const auto& [model, cluster, batch] :
       {std::tuple("vgg19", "workstation-3090-4090", 40),
        std::tuple("resnet50-tiny", "heterog-4gpu", 10), std::tuple("vgg19", "heterog-4gpu", 8),
        std::tuple("transformer6", "heterog-4gpu", 12)}) {
    const auto problem = load_test_problem(model, cluster, batch);
    const SharesResult found = search(*problem, 2);
    EXPECT_EQ(found.best.evaluation.step, best_of_all(*problem)) << model << " on " << cluster;
  }
}

// Computing for the same time is not all: what is sent through slow wires, and when, counts too.
TEST(Shares, GainOverBalancedComputation) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 192);
  const auto balanced = balance(ModelSeconds(*problem), 192, Samples(8, 192));
  ASSERT_TRUE(balanced);
  oracle::Evaluator evaluator(*problem);
  const SharesResult found = search(*problem, 2);
  decide::Strategy strategy = shares_strategy(*problem, *balanced);
  strategy.order = found.best.strategy.order;
  strategy.bucket_bytes = found.best.strategy.bucket_bytes;
  EXPECT_LT(found.best.evaluation.step, evaluator.evaluate(strategy).step);
}

// VGG-19's 575 MB of gradients take longer through an office's wires than two A100 compute.
TEST(Shares, LeaveOutDevicesBehindSlowWires) {
  const auto problem = load_test_problem("vgg19", "office-mixed", 96);
  const SharesResult found = search(*problem, 2);
  EXPECT_EQ(found.best.samples, Samples(std::vector<std::int64_t>{48, 48, 0, 0, 0, 0, 0}));
  EXPECT_LT(5 * found.best.evaluation.step, found.even.evaluation.step);
}

TEST(Shares, AreNeverWorseThanEvenAndProportional) {
  for (const char* model : {"vgg19", "mobilenet_v2", "bert_large24"}) {
    const auto problem = load_test_problem(model, "heterog-8gpu", 48);
    const SharesResult found = search(*problem, 2);
    EXPECT_EQ(sum(found.best.samples), 48);
    EXPECT_TRUE(found.best.evaluation.feasible);
    oracle::Evaluator evaluator(*problem);
    for (const NamedStrategy& baseline : baseline_strategies(*problem)) {
      if (baseline.name != "ev-ar" && baseline.name != "cp-ar") continue;
      const Evaluation bar = evaluator.evaluate(baseline.strategy);
      EXPECT_FALSE(better(bar, found.best.evaluation)) << model << " " << baseline.name;
    }
    // The strategy is what was evaluated, and its slices are the samples.
    EXPECT_EQ(evaluator.evaluate(found.best.strategy).step, found.best.evaluation.step);
    for (const decide::UnitDecision& unit : found.best.strategy.units) {
      Samples sliced(problem->cluster->device_count(), 0);
      for (const decide::Slice& slice : decide::slice_batch(unit.replicas, 48)) {
        sliced[slice.device] = slice.size();
      }
      ASSERT_EQ(sliced, found.best.samples);
    }
  }
}

TEST(Shares, DoNotDependOnTheNumberOfThreads) {
  const auto problem = load_test_problem("inception_v3", "heterog-8gpu", 64);
  const SharesResult one = search(*problem, 1), two = search(*problem, 2);
  EXPECT_EQ(one.best.samples, two.best.samples);
  EXPECT_EQ(one.best.strategy, two.best.strategy);
  EXPECT_EQ(one.evaluations, two.evaluations);
}

// BERT-large at 72 samples: neither 9 a device nor whole multiples of the slowest fit.
TEST(Shares, FitInMemoryWhereEvenAndProportionalDoNot) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 72);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  const SharesResult found = search_shares(evaluator, {.evaluations = 60});
  EXPECT_FALSE(found.even.evaluation.feasible);
  EXPECT_FALSE(found.proportional.evaluation.feasible);
  EXPECT_TRUE(found.best.evaluation.feasible);
}

// Beside the settings of EV, CP and the result, 20 plans.
TEST(Shares, KeepTheirBudget) {
  const auto problem = load_test_problem("vgg19", "heterog-8gpu", 192);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  const SharesResult found = search_shares(evaluator, {.evaluations = 20});
  EXPECT_LE(found.evaluations, 2 * 6 + 20 + 6);
  EXPECT_FALSE(better(found.even.evaluation, found.best.evaluation));
}

class BalanceTest : public testing::Test {
 protected:
  const std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("vgg19", "heterog-8gpu", 192);
  const ModelSeconds seconds_{*problem_};

  double longest(const Samples& samples) const {
    double longest = 0;
    for (DeviceId device : problem_->cluster->device_ids()) {
      longest = std::max(longest, seconds_(device, samples[device]));
    }
    return longest;
  }
};

// Optimal for times that grow with the samples: no device can hand on a sample for less.
TEST_F(BalanceTest, NoMoveOfOneSampleShortensTheLongest) {
  const auto balanced = balance(seconds_, 192, Samples(8, 192));
  ASSERT_TRUE(balanced);
  EXPECT_EQ(sum(*balanced), 192);
  for (DeviceId from : problem_->cluster->device_ids()) {
    for (DeviceId to : problem_->cluster->device_ids()) {
      Samples moved = *balanced;
      if (from == to || moved[from] == 0) continue;
      --moved[from];
      ++moved[to];
      EXPECT_GE(longest(moved), longest(*balanced));
    }
  }
  // Devices of one type get the same, or one more; faster ones get more.
  EXPECT_LE(std::abs((*balanced)[DeviceId(2)] - (*balanced)[DeviceId(5)]), 1);
  EXPECT_GT((*balanced)[DeviceId(0)], (*balanced)[DeviceId(2)]);
}

TEST_F(BalanceTest, KeepsToWhatADeviceMayTake) {
  Samples most(8, 192);
  most[DeviceId(0)] = 5;
  most[DeviceId(3)] = 0;
  const auto balanced = balance(seconds_, 192, most);
  ASSERT_TRUE(balanced);
  EXPECT_EQ(sum(*balanced), 192);
  EXPECT_EQ((*balanced)[DeviceId(0)], 5);
  EXPECT_EQ((*balanced)[DeviceId(3)], 0);
  EXPECT_FALSE(balance(seconds_, 192, Samples(8, 23)));
  EXPECT_EQ(balance(seconds_, 192, Samples(8, 24)), Samples(8, 24));
}

// Every split of every micro-batch, in the order and the buckets of DistributedDataParallel.
TEST(DdpPlans, AreTheBestThatThereAre) {
  const auto problem = load_test_problem("bert_large24", "workstation-3090-4090", 16);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  const DdpPlan found = search_ddp(evaluator).best;
  std::optional<Evaluation> best;
  for (std::int64_t count : {1, 2, 4, 8, 16}) {
    std::vector<Samples> splits;
    Samples samples(problem->cluster->device_count(), 0);
    every_split(16 / count, 0, samples, splits);
    for (const Samples& split : splits) {
      const decide::Strategy strategy = ddp_strategy(*problem, split, count);
      const Evaluation one = evaluator.evaluate(strategy).evaluation;
      if (!best || better(one, *best)) best = one;
    }
  }
  EXPECT_EQ(found.evaluation.step, best->step);
  EXPECT_EQ(sum(found.samples) * found.micro_batches, 16);
}

// Where memory holds few samples on the fast devices, micro-batches let these have more.
TEST(DdpPlans, TakeMicroBatchesWhereMemoryIsShort) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 48);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  const Shares whole = search_shares(evaluator, {.as_ddp = true}).best;
  const DdpPlan found = search_ddp(evaluator).best;
  EXPECT_GT(found.micro_batches, 1);
  EXPECT_TRUE(found.evaluation.feasible);
  EXPECT_TRUE(better(found.evaluation, whole.evaluation));
}

// No shares of the batch as a whole fit, nor of two or three micro-batches. These are not climbed
// from, so that few plans are enough to find the fewest that fit.
TEST(DdpPlans, NeedFewPlansWhereLittleFits) {
  const auto problem = load_test_problem("transformer24", "heterog-8gpu", 48);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  const DdpPlan found = search_ddp(evaluator).best;
  EXPECT_TRUE(found.evaluation.feasible);
  EXPECT_EQ(found.micro_batches, 4);
  EXPECT_LE(evaluator.evaluations(), 100);
  EXPECT_FALSE(
      search_shares(evaluator, {.micro_batches = 3, .as_ddp = true}).best.evaluation.feasible);
}

// LoRA of 7B: a card of 24 GB holds few texts beside the base, so that the third would have most.
TEST(DdpPlans, AreAsFastAsProportionalMicroBatches) {
  const auto problem = load_test_problem("llama7b_lora", "three-cards", 16);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  const DdpPlan found = search_ddp(evaluator, {.as_ddp = false}).best;
  EXPECT_TRUE(found.evaluation.feasible);
  std::optional<Evaluation> best;
  for (std::int64_t count : {2, 4, 8, 16}) {
    const Evaluation one =
        evaluator.evaluate(decide::accumulate(*problem, proportional_all_reduce(*problem), count))
            .evaluation;
    if (!best || better(one, *best)) best = one;
  }
  EXPECT_LT(static_cast<double>(found.evaluation.step), 1.05 * static_cast<double>(best->step));
}

TEST(DdpPlans, AreKnownAgainAndNothingElseIs) {
  const auto problem = load_test_problem("vgg19", "heterog-4gpu", 32);
  const Samples samples(std::vector<std::int64_t>{3, 3, 1, 1});
  const decide::Strategy strategy = ddp_strategy(*problem, samples, 4);
  const auto known = exact_ddp(*problem, strategy);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->samples, samples);
  EXPECT_EQ(known->micro_batches, 4);
  const auto refused = [&](auto&& change) {
    decide::Strategy other = strategy;
    change(other);
    return !exact_ddp(*problem, other);
  };
  EXPECT_TRUE(refused([](auto& other) { other.bucket_bytes = 0; }));
  EXPECT_TRUE(refused([](auto& other) { other.micro_batches = 3; }));
  EXPECT_TRUE(refused([](auto& other) { other.units[UnitId(1)].replicas.pop_back(); }));
  EXPECT_TRUE(refused(
      [](auto& other) { other.units[UnitId(1)].sync = decide::SyncMethod::kParameterServer; }));
}

}  // namespace
}  // namespace heterog::search
