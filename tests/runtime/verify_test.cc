// Whole training steps of the tiny zoo under plans of every kind equal those of one device.
#include "runtime/verify.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>

#include "runtime/jobs.h"

namespace heterog::runtime {
namespace {

using compiler::SyncMethod;

constexpr double kTolerance = 1e-10;  // relative, in double precision (DESIGN §5.12)

std::string text_of(const Verification& verification) {
  std::string text;
  for (const Difference& worst : verification.worst) {
    text += fmt::format("{} {} on {} step {}: {:.2e}\n", worst.kind, worst.tensor, worst.device,
                        worst.step, worst.relative);
  }
  return text;
}

void expect_exact(std::shared_ptr<const cost::Problem> problem, const compiler::Strategy& strategy,
                  const std::string& what) {
  SCOPED_TRACE(what);
  const TestJob test = make_test_job(problem, strategy);
  const Verification verification = verify(test.job, test.plan, {.steps = 2});
  EXPECT_GT(verification.compared, 2);
  EXPECT_LE(verification.worst_relative(), kTolerance) << text_of(verification);
}

std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("models")) {
    const std::string name = entry.path().filename().string();
    if (name.find("-tiny.json.gz") != name.npos) names.push_back(name.substr(0, name.find('.')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

class TinyZoo : public testing::TestWithParam<std::string> {};

TEST_P(TinyZoo, EveryKindOfPlanTrainsAsOneDevice) {
  const std::shared_ptr<const cost::Problem> problem = compiler::model_problem(GetParam(), 3, 16);
  expect_exact(problem, weighted(*problem, {1, 1, 1}, SyncMethod::kAllReduce), "ev-ar");
  expect_exact(problem, weighted(*problem, {1, 1, 1}, SyncMethod::kParameterServer), "ev-ps");
  expect_exact(problem, weighted(*problem, {2, 1, 1}, SyncMethod::kAllReduce), "cp-ar");
  expect_exact(problem, weighted(*problem, {1, 7}, SyncMethod::kParameterServer), "1:7 ps");
  expect_exact(problem, weighted(*problem, {1, 7}, SyncMethod::kAllReduce), "1:7 ar");
  expect_exact(problem,
               compiler::uniform_strategy(*problem, compiler::single_decision(DeviceId(1))),
               "single");
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    expect_exact(problem, random_mix(*problem, seed), fmt::format("random mix {}", seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TinyZoo, testing::ValuesIn(tiny_models()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name;
                           for (char c : info.param) {
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

Verification verify_broken(std::shared_ptr<const cost::Problem> problem,
                           const compiler::Strategy& strategy, Fault fault) {
  TestJob test = make_test_job(problem, strategy);
  inject(test.job, test.plan, fault);
  return verify(test.job, test.plan, {.steps = 2});
}

// What verification is for: each of these goes unnoticed in frameworks that only average.
TEST(VerifyItself, FindsADroppedContribution) {
  for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    const std::shared_ptr<const cost::Problem> problem =
        compiler::model_problem("bert_large24-tiny", 3, 8);
    EXPECT_GT(verify_broken(problem, weighted(*problem, {1, 1, 1}, sync), Fault::kDropContribution)
                  .worst_relative(),
              1e-3);
  }
}

TEST(VerifyItself, FindsEqualWeightsOnUnequalSlices) {
  const std::shared_ptr<const cost::Problem> problem = compiler::model_problem("lenet5-tiny", 2, 8);
  const auto unequal = weighted(*problem, {1, 7}, SyncMethod::kAllReduce);
  EXPECT_GT(verify_broken(problem, unequal, Fault::kEqualWeights).worst_relative(), 1e-3);
  const auto equal = weighted(*problem, {1, 1}, SyncMethod::kAllReduce);
  EXPECT_THROW(verify_broken(problem, equal, Fault::kEqualWeights), Error);
}

TEST(VerifyItself, FindsASkippedPull) {
  const std::shared_ptr<const cost::Problem> problem = compiler::model_problem("lenet5-tiny", 2, 8);
  const auto servers = weighted(*problem, {1, 1}, SyncMethod::kParameterServer);
  const Verification found = verify_broken(problem, servers, Fault::kSkipPull);
  EXPECT_GT(found.worst_relative(), 1e-4);
  const auto reduced = weighted(*problem, {1, 1}, SyncMethod::kAllReduce);
  EXPECT_THROW(verify_broken(problem, reduced, Fault::kSkipPull), Error);
}

}  // namespace
}  // namespace heterog::runtime
