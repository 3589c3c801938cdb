// Plans that are run at other numbers of samples than they were made for train as one device.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "compiler/rescale.h"
#include "decide/random_instances.h"
#include "runtime/program/faults.h"
#include "runtime/verified.h"
#include "support/rounds.h"

namespace heterog::runtime {
namespace {

using decide::SyncMethod;

// `test` at another batch, in the same order.
TestJob at_batch(const TestJob& test, std::int64_t batch) {
  TestJob other;
  const std::shared_ptr<const cost::Problem> problem = compiler::at_batch(*test.job.problem, batch);
  other.plan = compiler::rescaled(*problem, test.plan);
  sim::Simulator simulator;
  const sim::SimResult& result = simulator.simulate_timeline(test.plan, decide::OrderPolicy::kRank);
  other.job = make_job(problem, other.plan, result.dispatch, {.capture_gradients = true}, "test");
  return other;
}

std::int64_t empty_slices(const compiler::Plan& plan) {
  std::int64_t empty = 0;
  for (TaskId task : plan.task_ids()) empty += plan.begin[task] == plan.end[task] ? 1 : 0;
  return empty;
}

std::vector<std::string> batch_graphs() {
  std::vector<std::string> names;
  for (const char* folder : {"tests/data", "models"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      const bool tiny = name.ends_with("-tiny.json.gz");
      if (name.ends_with(".json.gz") && (tiny || std::string(folder) == "tests/data")) {
        names.push_back(std::string(folder) + "/" + name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

class OtherBatches : public testing::TestWithParam<std::string> {};

TEST_P(OtherBatches, TrainAsOneDevice) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph(GetParam()), 3, 16);
  // NASNet has 11,000 operators.
  const int seeds = problem->graph->op_count() > 5000 ? 1 : support::rounds(12);
  const graph::ModelGraph& graph = *problem->graph;
  bool normalises = false;
  for (OpId op : graph.op_ids()) normalises |= graph.facts(op).batch_statistics.has_value();
  Rng rng(7);
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds); ++seed) {
    const TestJob test =
        make_test_job(problem, seed % 2 == 0 ? random_mix(*problem, seed)
                                             : decide::random_instances(*problem, seed));
    // The statistics of few samples magnify rounding (docs/verifying.md).
    const std::int64_t least = normalises ? 14 : 2;
    const std::int64_t batch = least + static_cast<std::int64_t>(rng.below(20));
    SCOPED_TRACE(fmt::format("seed {} batch {}", seed, batch));
    const TestJob other = at_batch(test, batch);
    const Verification verification = verify(other.job, other.plan, {.steps = 2});
    EXPECT_GT(verification.compared, 2);
    EXPECT_LE(verification.worst_relative(), kTolerance) << text_of(verification);
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, OtherBatches, testing::ValuesIn(batch_graphs()),
                         [](const auto& info) {
                           std::string name =
                               std::filesystem::path(info.param).stem().stem().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Fewer samples than slices: those that are empty add nothing, whatever the plan does with them.
class EmptySlices : public testing::TestWithParam<const char*> {};

TEST_P(EmptySlices, AddNothing) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph(GetParam()), 4, 16);
  std::int64_t empty = 0;
  for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    for (const std::vector<double>& weights : {std::vector<double>{1, 1, 1, 1}, {1, 9, 3, 3}}) {
      for (std::int64_t batch : {2, 3}) {
        SCOPED_TRACE(fmt::format("batch {}", batch));
        const TestJob other =
            at_batch(make_test_job(problem, weighted(*problem, weights, sync)), batch);
        empty += empty_slices(other.plan);
        const Verification verification = verify(other.job, other.plan, {.steps = 2, .seed = 3});
        EXPECT_LE(verification.worst_relative(), kTolerance) << text_of(verification);
      }
    }
  }
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const TestJob other =
        at_batch(make_test_job(problem, decide::random_instances(*problem, seed)), 2);
    empty += empty_slices(other.plan);
    const Verification verification = verify(other.job, other.plan, {.steps = 2, .seed = 3});
    EXPECT_LE(verification.worst_relative(), kTolerance) << text_of(verification);
  }
  EXPECT_GT(empty, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, EmptySlices,
    testing::Values("tests/data/exact_batch_norm.json.gz", "tests/data/lstm.json.gz",
                    "tests/data/mlp_clipped.json.gz", "tests/data/mlp_penalised.json.gz",
                    "tests/data/sequence_first.json.gz", "tests/data/transformer_dropout.json.gz",
                    "tests/data/transformer_tied.json.gz", "models/ncf-tiny.json.gz"),
    [](const auto& info) { return "Graph" + std::to_string(info.index); });

// What a rescaled plan gets wrong is seen.
TEST(OtherBatch, IsNotExactWithWeightsOfTheOld) {
  const std::shared_ptr<const cost::Problem> problem = decide::model_problem("lenet5-tiny", 2, 16);
  TestJob other =
      at_batch(make_test_job(problem, weighted(*problem, {1, 7}, SyncMethod::kAllReduce)), 5);
  EXPECT_LE(verify(other.job, other.plan, {.steps = 2}).worst_relative(), kTolerance);
  inject(other.job, other.plan, Fault::kEqualWeights);
  EXPECT_GT(verify(other.job, other.plan, {.steps = 2}).worst_relative(), 1e-3);
}

}  // namespace
}  // namespace heterog::runtime
