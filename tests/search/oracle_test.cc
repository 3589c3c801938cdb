// Planners follow whatever oracle they are given, and ask it as often as they say.
#include "oracle/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/simulated_oracle.h"
#include "search/answers/shares.h"
#include "search/moves/move.h"
#include "search/portfolio/portfolio.h"
#include "search/problems.h"
#include "search/registry.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

// Knows nothing of time: a group costs a second, or a millisecond on its favourite device alone.
// A group that has a replica on the device that it dislikes lacks a gigabyte there.
class ToyOracle final : public oracle::Oracle {
 public:
  ToyOracle(const cost::Problem& problem, DeviceId favourite, DeviceId disliked)
      : problem_(problem), favourite_(favourite), disliked_(disliked) {}
  std::vector<Measured> measure(std::span<const decide::Strategy> strategies) override {
    std::vector<Measured> answers;
    for (const decide::Strategy& strategy : strategies) answers.push_back(answer(strategy));
    asked_ += static_cast<std::int64_t>(strategies.size());
    return answers;
  }
  // Orders make no difference to it.
  std::vector<Measured> measure_rounds(const decide::Strategy& strategy) override {
    return {answer(strategy)};
  }
  const cost::Problem& problem() const override { return problem_; }
  Measured answer(const decide::Strategy& strategy) const {
    Nanoseconds step = 0;
    IdVector<DeviceId, Bytes> peaks(problem_.cluster->device_count(), 1);
    for (const decide::UnitDecision& unit : strategy.units) {
      bool alone = true;
      for (const decide::Replica& replica : unit.replicas) {
        alone &= replica.device == favourite_;
        if (replica.device != disliked_) continue;
        peaks[disliked_] = problem_.cluster->device(disliked_).memory_bytes + 1'000'000'000;
      }
      step += alone ? 1'000'000 : 1'000'000'000;
    }
    return oracle::judge(problem_, step, peaks);
  }
  std::int64_t asked() const { return asked_; }

 private:
  const cost::Problem& problem_;
  DeviceId favourite_, disliked_;
  std::int64_t asked_ = 0;
};

std::size_t groups_alone_on(DeviceId device, const decide::Strategy& strategy) {
  const Replicas alone = {{device, 1}};
  return static_cast<std::size_t>(
      std::count_if(strategy.units.begin(), strategy.units.end(),
                    [&](const decide::UnitDecision& unit) { return unit.replicas == alone; }));
}

class OracleTest : public testing::Test {
 protected:
  const std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("vgg19-tiny", "heterog-4gpu", 32);
  const std::size_t groups_ = problem_->grouping.count();
  const Registry registry_{builtin_planners()};

  PlannerResult plan(const std::string& request, oracle::Oracle& oracle, Budget budget) const {
    PlannerContext context{.oracle = oracle, .rng = Rng(3), .budget = std::move(budget)};
    return registry_.make(request, *problem_->cluster)->plan(context);
  }
};

TEST_F(OracleTest, EveryPlannerReportsWhatItsOracleSays) {
  for (const PlannerEntry& entry : registry_.entries()) {
    SCOPED_TRACE(std::string(entry.name));
    ToyOracle toy(*problem_, DeviceId(3), DeviceId(0));
    const PlannerResult found = plan(std::string(entry.name), toy, {.evaluations = 80});
    const Evaluation expected = toy.answer(found.strategy).evaluation;
    EXPECT_EQ(found.evaluation.step, expected.step);
    EXPECT_EQ(found.evaluation.missing_bytes, expected.missing_bytes);
    EXPECT_EQ(found.evaluations, toy.asked());
  }
}

// The simulator would never put all of it on one device, let alone the slowest; the toy wants that.
TEST_F(OracleTest, SearchGoesWhereTheOracleSendsIt) {
  // The first of each type: the portfolio takes one device to be as good as any like it.
  for (const std::size_t favourite : {0, 2}) {
    const DeviceId device(favourite);
    ToyOracle toy(*problem_, device, DeviceId(1));
    EXPECT_EQ(plan("single", toy, {}).strategy, single_device(*problem_, device));
    const PlannerResult climbed = plan("local-search", toy, {.evaluations = 400});
    EXPECT_EQ(groups_alone_on(device, climbed.strategy), groups_);
    PlannerContext context{.oracle = toy, .rng = Rng(3), .budget = {.evaluations = 200}};
    const PlannerResult best = best_plan(context);
    EXPECT_EQ(groups_alone_on(device, best.strategy), groups_);
    EXPECT_EQ(best.found_by.substr(0, 6), "single");
  }
  ThreadPool pool(1);
  oracle::SimulatedOracle simulator(*problem_, pool);
  const PlannerResult simulated = plan("local-search", simulator, {.evaluations = 100});
  EXPECT_LT(groups_alone_on(DeviceId(3), simulated.strategy), groups_);
}

// Shares of data parallelism keep off the device that has no memory, by this oracle's verdict.
TEST_F(OracleTest, SharesKeepToItsVerdictOnMemory) {
  const DeviceId disliked(1);
  ToyOracle toy(*problem_, DeviceId(3), disliked);
  BatchEvaluator evaluator(toy);
  const SharesResult found = search_shares(evaluator, {.evaluations = 100});
  EXPECT_FALSE(found.even.evaluation.feasible);
  EXPECT_TRUE(found.best.evaluation.feasible);
  EXPECT_EQ(found.best.samples[disliked], 0);
}

}  // namespace
}  // namespace heterog::search
