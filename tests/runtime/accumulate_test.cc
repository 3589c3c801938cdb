// Plans in micro-batches train as one device, at their own batch and at others.
#include <gtest/gtest.h>

#include <string>

#include "compiler/rescale.h"
#include "decide/micro_batches.h"
#include "decide/random_instances.h"
#include "runtime/program/faults.h"
#include "runtime/verified.h"

namespace heterog::runtime {
namespace {

using decide::SyncMethod;

class InMicroBatches : public testing::TestWithParam<const char*> {};

TEST_P(InMicroBatches, TrainAsOneDevice) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph(GetParam()), 3, 13);
  for (std::int64_t k : {2, 3, 5}) {
    SCOPED_TRACE(k);
    for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
      const auto shared = weighted(*problem, {3, 1, 1}, sync);
      EXPECT_LE(off_by(problem, decide::accumulate(*problem, shared, k), 2), kTolerance);
    }
    const auto single = decide::uniform_strategy(*problem, decide::single_decision(DeviceId(1)));
    EXPECT_LE(off_by(problem, decide::accumulate(*problem, single, k), 2), kTolerance);
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      const auto mix = seed == 0
                           ? random_mix(*problem, static_cast<std::uint64_t>(k))
                           : decide::random_instances(*problem, static_cast<std::uint64_t>(k), 2);
      EXPECT_LE(off_by(problem, decide::accumulate(*problem, mix, k), 2), kTolerance) << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, InMicroBatches,
    testing::Values("tests/data/exact_batch_norm.json.gz", "tests/data/lstm.json.gz",
                    "tests/data/mlp_clipped.json.gz", "tests/data/mlp_penalised.json.gz",
                    "tests/data/sequence_first.json.gz", "tests/data/transformer_dropout.json.gz",
                    "tests/data/transformer_tied.json.gz", "models/ncf-tiny.json.gz",
                    "models/gnmt4-tiny.json.gz", "models/resnet50-tiny.json.gz",
                    "models/bert_large24-tiny.json.gz"),
    [](const auto& info) { return "Graph" + std::to_string(info.index); });

TEST(MicroBatch, OfAnotherBatchTrainsAsOneDevice) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/transformer_tied.json.gz"), 2, 12);
  const auto strategy =
      decide::accumulate(*problem, weighted(*problem, {2, 1}, SyncMethod::kParameterServer), 4);
  const compiler::Plan plan = compiler::compile(*problem, strategy, {});
  const std::vector<TaskId> dispatch = sim::simulate(plan, strategy.order).dispatch;
  for (std::int64_t batch : {2, 5, 7, 20}) {
    const auto other = compiler::at_batch(*problem, batch);
    const compiler::Plan cut = compiler::rescaled(*other, plan);
    const Job job = make_job(other, cut, dispatch, {.capture_gradients = true}, "test");
    EXPECT_LE(verify(job, cut, {.steps = 2}).worst_relative(), kTolerance) << batch;
  }
}

TEST(MicroBatch, LeftOutIsSeen) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/mlp_sgd.json.gz"), 2, 12);
  const auto strategy =
      decide::accumulate(*problem, weighted(*problem, {2, 1}, SyncMethod::kAllReduce), 3);
  TestJob test = make_test_job(problem, strategy);
  inject(test.job, test.plan, Fault::kDropContribution);
  EXPECT_GT(verify(test.job, test.plan, {.steps = 1}).worst_relative(), 1e-3);
}

}  // namespace
}  // namespace heterog::runtime
