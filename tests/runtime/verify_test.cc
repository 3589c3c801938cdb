// Whole training steps of the tiny zoo under plans of every kind equal those of one device.

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <filesystem>

#include "base/rng.h"
#include "decide/layout.h"
#include "decide/micro_batches.h"
#include "runtime/program/faults.h"
#include "runtime/verified.h"
#include "support/rounds.h"

namespace heterog::runtime {
namespace {

using decide::SyncMethod;

void expect_exact(std::shared_ptr<const cost::Problem> problem, const decide::Strategy& strategy,
                  const std::string& what) {
  SCOPED_TRACE(what);
  const TestJob test = make_test_job(problem, strategy);
  const Verification verification = verify(test.job, test.plan, {.steps = 2});
  EXPECT_GT(verification.compared, 2);
  EXPECT_LE(verification.worst_relative(), kTolerance) << text_of(verification);
}

// Graph files of a folder, without their ending.
std::vector<std::string> graphs_in(const std::string& folder, const std::string& ending) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(ending)) names.push_back(folder + "/" + name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void expect_all_plans_exact(const std::string& path, std::int64_t batch, int mixes) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph(path), 3, batch);
  expect_exact(problem, weighted(*problem, {1, 1, 1}, SyncMethod::kAllReduce), "ev-ar");
  expect_exact(problem, weighted(*problem, {1, 1, 1}, SyncMethod::kParameterServer), "ev-ps");
  expect_exact(problem, weighted(*problem, {2, 1, 1}, SyncMethod::kAllReduce), "cp-ar");
  expect_exact(problem, weighted(*problem, {2, 1, 1}, SyncMethod::kParameterServer), "cp-ps");
  expect_exact(problem, weighted(*problem, {1, 7}, SyncMethod::kParameterServer), "1:7 ps");
  expect_exact(problem, weighted(*problem, {1, 7}, SyncMethod::kAllReduce), "1:7 ar");
  expect_exact(problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(1))),
               "single");
  for (int seed = 0; seed < mixes; ++seed) {
    expect_exact(problem, random_mix(*problem, static_cast<std::uint64_t>(seed)),
                 fmt::format("random mix {}", seed));
  }
}

class TinyZoo : public testing::TestWithParam<std::string> {};

TEST_P(TinyZoo, EveryKindOfPlanTrainsAsOneDevice) {
  // NASNet has 11,000 operators: fewer mixes for those.
  const std::size_t ops = graph::read_graph(GetParam()).op_count();
  expect_all_plans_exact(GetParam(), 16, ops > 5000 ? 1 : support::rounds(8));
}

INSTANTIATE_TEST_SUITE_P(Models, TinyZoo, testing::ValuesIn(graphs_in("models", "-tiny.json.gz")),
                         test_name);

// Parameter servers on the hosts of two of three machines. Of a mix some name a host, some a
// replica.
class Served : public testing::TestWithParam<std::string> {};

TEST_P(Served, HostsThatServeTrainAsOneDevice) {
  // A hundred batch norms make too much of a rounding on slices of one or two samples, whose
  // variances are near 0 (docs/verifying.md): four at least.
  const bool deep = GetParam().find("resnet101") != std::string::npos;
  const std::shared_ptr<const cost::Problem> problem =
      decide::served_problem(graph::read_graph(GetParam()), 2, {true, false, true}, deep ? 64 : 16);
  const std::vector<double> even(6, 1), unequal = {1, 7, 2, 1, 3, 2};
  expect_exact(problem, weighted(*problem, even, SyncMethod::kParameterServer), "ev-ps");
  expect_exact(problem, weighted(*problem, unequal, SyncMethod::kParameterServer), "unequal ps");
  const std::size_t ops = problem->graph->op_count();
  for (std::uint64_t seed = 0; seed < (ops > 5000 ? 1 : 3); ++seed) {
    decide::Strategy mix = random_mix(*problem, seed);
    const decide::Layout layout = decide::lay_out(*problem, mix);
    Rng rng(seed);
    for (TensorId parameter : problem->graph->parameters()) {
      if (layout.home_of[parameter] == decide::Layout::kNoHome) continue;
      const decide::ParameterHome& home = layout.home(parameter);
      const bool named = std::ranges::count(mix.sync, parameter, &decide::ParameterSync::parameter);
      if (named || home.device_count() < 2 || rng.below(3) == 0) continue;
      mix.sync.push_back(
          {parameter, SyncMethod::kParameterServer,
           rng.below(2) == 0 ? home.replicas.front() : problem->cluster->host_ids()[rng.below(2)]});
    }
    expect_exact(problem, mix, fmt::format("random mix {}", seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Served, testing::ValuesIn(graphs_in("models", "-tiny.json.gz")),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Data, Served, testing::ValuesIn(graphs_in("tests/data", ".json.gz")),
                         test_name);

class SmallSteps : public testing::TestWithParam<std::string> {};

TEST_P(SmallSteps, EveryKindOfPlanTrainsAsOneDevice) { expect_all_plans_exact(GetParam(), 11, 25); }

INSTANTIATE_TEST_SUITE_P(Data, SmallSteps, testing::ValuesIn(graphs_in("tests/data", ".json.gz")),
                         test_name);

// In the graph's own types. Partial sums of k slices round each on its own, and once more where
// they are added: with unit roundoff u they differ from the sum of one device by at most (k + 1) u
// of the sum of their norms, which for gradients of one sign or none is at most √k of the norm of
// the whole; through the L matrix products between a weight and the loss, which round alike, this
// adds up to L (k + 1) √k u.
void expect_exact_to_its_rounding(const std::string& path, double unit) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph(path), 3, 12);
  const TestJob test =
      make_test_job(problem, weighted(*problem, {4, 1, 1}, SyncMethod::kAllReduce));
  const Verification verification =
      verify(test.job, test.plan, {.steps = 1, .floats = Floats::kOwn});
  const double slices = 3, products = 2 * 8 + 1;
  EXPECT_LE(verification.worst_relative(), products * (slices + 1) * std::sqrt(slices) * unit)
      << text_of(verification);
}

TEST(Verify, HalfPrecisionIsExactToItsRounding) {
  const double bfloat16 = std::pow(2.0, -9), float16 = std::pow(2.0, -12);
  expect_exact_to_its_rounding("tests/data/transformer_bfloat16.json.gz", bfloat16);
  expect_exact_to_its_rounding("tests/data/masters_bfloat16.json.gz", bfloat16);
  expect_exact_to_its_rounding("tests/data/transformer_float16.json.gz", float16);
}

Verification verify_broken(std::shared_ptr<const cost::Problem> problem,
                           const decide::Strategy& strategy, Fault fault) {
  TestJob test = make_test_job(problem, strategy);
  inject(test.job, test.plan, fault);
  return verify(test.job, test.plan, {.steps = 2});
}

// What verification is for: each of these goes unnoticed in frameworks that only average.
TEST(VerifyItself, FindsADroppedContribution) {
  for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    const std::shared_ptr<const cost::Problem> problem =
        decide::model_problem("bert_large24-tiny", 3, 8);
    EXPECT_GT(verify_broken(problem, weighted(*problem, {1, 1, 1}, sync), Fault::kDropContribution)
                  .worst_relative(),
              1e-3);
  }
}

TEST(VerifyItself, FindsEqualWeightsOnUnequalSlices) {
  const std::shared_ptr<const cost::Problem> problem = decide::model_problem("lenet5-tiny", 2, 8);
  const auto unequal = weighted(*problem, {1, 7}, SyncMethod::kAllReduce);
  EXPECT_GT(verify_broken(problem, unequal, Fault::kEqualWeights).worst_relative(), 1e-3);
  const auto equal = weighted(*problem, {1, 1}, SyncMethod::kAllReduce);
  EXPECT_THROW(verify_broken(problem, equal, Fault::kEqualWeights), Error);
}

TEST(VerifyItself, FindsASkippedPull) {
  const std::shared_ptr<const cost::Problem> problem = decide::model_problem("lenet5-tiny", 2, 8);
  const auto servers = weighted(*problem, {1, 1}, SyncMethod::kParameterServer);
  const Verification found = verify_broken(problem, servers, Fault::kSkipPull);
  EXPECT_GT(found.worst_relative(), 1e-4);
  const auto reduced = weighted(*problem, {1, 1}, SyncMethod::kAllReduce);
  EXPECT_THROW(verify_broken(problem, reduced, Fault::kSkipPull), Error);
}

// Micro-batches of one stage, all forward passes first.
TEST(VerifyItself, FindsWhatMicroBatchesMixUp) {
  const std::shared_ptr<const cost::Problem> problem = decide::model_problem("lenet5-tiny", 2, 8);
  const auto whole = weighted(*problem, {1, 1}, SyncMethod::kAllReduce);
  auto cut = decide::accumulate(*problem, whole, 2);
  cut.pattern = decide::Pattern::kForwardFirst;
  for (Fault fault : {Fault::kDropMicroBatch, Fault::kSwapTurns, Fault::kStaleParameter}) {
    SCOPED_TRACE(kFaultNames[static_cast<std::size_t>(fault)]);
    EXPECT_GT(verify_broken(problem, cut, fault).worst_relative(), 1e-4);
    EXPECT_THROW(verify_broken(problem, whole, fault), Error);
  }
}

}  // namespace
}  // namespace heterog::runtime
