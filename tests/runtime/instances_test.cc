// Plans in whose layouts devices stand several times train as one device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compiler/rescale.h"
#include "decide/layout.h"
#include "decide/random_instances.h"
#include "runtime/program/faults.h"
#include "runtime/verified.h"
#include "support/rounds.h"

namespace heterog::runtime {
namespace {

using compiler::TaskKind;
using decide::SyncMethod;

std::shared_ptr<const cost::Problem> problem_of(const std::string& graph, std::int64_t batch) {
  return decide::toy_problem(graph::read_graph(graph), 3, batch);
}

std::size_t accumulations(const compiler::Plan& plan) {
  return static_cast<std::size_t>(
      std::count(plan.kind.begin(), plan.kind.end(), TaskKind::kAccumulate));
}

class RepeatedDevices : public testing::TestWithParam<const char*> {};

TEST_P(RepeatedDevices, TrainAsOneDevice) {
  const auto problem = problem_of(GetParam(), 11);
  std::size_t added = 0;
  const auto seeds = static_cast<std::uint64_t>(support::rounds(12));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    const TestJob test = make_test_job(problem, decide::random_instances(*problem, seed));
    added += accumulations(test.plan);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), kTolerance);
  }
  EXPECT_GT(added, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, RepeatedDevices,
    testing::Values("tests/data/batch_norm_sgd.json.gz", "tests/data/convolutions_adamw.json.gz",
                    "tests/data/exact_batch_norm.json.gz", "tests/data/lstm.json.gz",
                    "tests/data/mlp_adam_squares.json.gz", "tests/data/mlp_clipped.json.gz",
                    "tests/data/mlp_penalised.json.gz", "tests/data/mlp_sgd.json.gz",
                    "tests/data/sequence_first.json.gz", "tests/data/transformer_dropout.json.gz",
                    "tests/data/transformer_tied.json.gz", "models/resnet50-tiny.json.gz",
                    "models/ncf-tiny.json.gz", "models/gnmt4-tiny.json.gz"),
    [](const auto& info) {
      std::string name = info.param;
      name = name.substr(name.rfind('/') + 1);
      name = name.substr(0, name.find('.'));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// The uses of a parameter in pieces of their own, with gradients from different places.
TEST(Pieces, ThatShareParametersTrainAsOneDevice) {
  std::size_t apart = 0, as_rows = 0;
  for (const char* path : {"tests/data/transformer_tied.json.gz", "tests/data/partly_tied.json.gz",
                           "models/bert_large24-tiny.json.gz", "models/transformer6-tiny.json.gz",
                           "tests/data/lstm.json.gz"}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(std::string(path) + ", " + std::to_string(seed));
      // Of few samples the embedding's gradient travels as rows.
      const auto problem = problem_of(path, seed % 2 == 0 ? 11 : 2);
      const decide::Strategy strategy = decide::random_pieces(*problem, seed);
      apart += decide::lay_out(*problem, strategy).sums_at_update.size();
      const TestJob test = make_test_job(problem, strategy);
      for (TaskId task : test.plan.task_ids()) {
        as_rows += test.plan.kind[task] == TaskKind::kSum &&
                   test.plan.encoding_of(task) == compiler::Encoding::kRows;
      }
      EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), kTolerance);
      if (seed > 2) continue;
      const auto other = compiler::at_batch(*problem, 23);  // more rows travel
      const compiler::Plan cut = compiler::rescaled(*other, test.plan);
      const auto dispatch = sim::simulate(cut, strategy.order).dispatch;
      const Job job = make_job(other, cut, dispatch, {.capture_gradients = true}, "test");
      EXPECT_LE(verify(job, cut, {.steps = 2}).worst_relative(), kTolerance);
    }
  }
  EXPECT_GT(apart, 10u);
  EXPECT_GT(as_rows, 2u);
}

// GPipe's plan: two stages, four micro-batches each, nothing replicated.
TEST(MicroBatches, OfTwoStagesTrainAsOneDevice) {
  const auto problem = problem_of("models/bert_large24-tiny.json.gz", 8);
  decide::Strategy strategy;
  const std::size_t groups = problem->grouping.count();
  for (std::size_t group = 0; group < groups; ++group) {
    strategy.units.push_back(decide::single_decision(DeviceId(2 * group / groups)));
  }
  strategy.micro_batches = 4;
  const TestJob test = make_test_job(problem, strategy);
  EXPECT_GT(accumulations(test.plan), 0u);
  EXPECT_EQ(std::count(test.plan.kind.begin(), test.plan.kind.end(), TaskKind::kAllReduce), 0);
  EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), kTolerance);
}

// A fault in one of a device's instances is seen.
TEST(MicroBatches, AreNotExactWithoutOneOfTheirGradients) {
  const auto problem = problem_of("tests/data/mlp_sgd.json.gz", 12);
  auto strategy = decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0)));
  strategy.micro_batches = 3;
  TestJob test = make_test_job(problem, strategy);
  inject(test.job, test.plan, Fault::kDropContribution);
  EXPECT_GT(verify(test.job, test.plan, {.steps = 1}).worst_relative(), 1e-3);
}

}  // namespace
}  // namespace heterog::runtime
