// Devices that a plan can do without: what is taken over by whom, and when it is left as it was.
#include "search/answers/leave_out.h"

#include <gtest/gtest.h>

#include "oracle/simulated_oracle.h"
#include "search/moves/move.h"
#include "search/problems.h"
#include "search/registry.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

class LeaveOut : public testing::Test {
 protected:
  // Two A100 in one machine; five slower cards behind 10 GbE.
  LeaveOut()
      : problem_(load_test_problem("vgg19", "office-mixed", 96)),
        pool_(2),
        oracle_(*problem_, pool_),
        evaluator_(oracle_) {}

  // On the two A100 alone.
  decide::Strategy fast_two() const {
    return decide::uniform_strategy(*problem_, {.replicas = {{DeviceId(0)}, {DeviceId(1)}}});
  }
  // The last group's backward pass and update, on the T4 alone: a stray card.
  decide::Strategy with_stray() const {
    decide::Strategy strategy = fast_two();
    UnitId smallest(0);
    double least = 1e9;
    for (GroupId group : id_range<GroupId>(problem_->grouping.count())) {
      double seconds = 0;
      for (OpId op : problem_->grouping.members[group]) seconds += problem_->costs.mean_seconds(op);
      if (seconds < least) smallest = UnitId(group.value());
      least = std::min(least, seconds);
    }
    strategy.units[smallest].replicas = {{kStray}};
    return strategy;
  }
  std::optional<FewerDevices> tried(const decide::Strategy& strategy, double tolerance = 0) {
    return leave_out(evaluator_, strategy, evaluator_.evaluate(strategy).evaluation,
                     {.tolerance = tolerance, .most = 16});
  }

  static constexpr DeviceId kStray{6};
  std::unique_ptr<const cost::Problem> problem_;
  ThreadPool pool_;
  oracle::SimulatedOracle oracle_;
  BatchEvaluator evaluator_;
};

TEST_F(LeaveOut, WorkAddsUpToOne) {
  double sum = 0;
  for (double part : work_shares(*problem_, even_all_reduce(*problem_))) {
    EXPECT_NEAR(part, 1.0 / 7, 0.02);  // 96 samples on 7 devices: 13 or 14
    sum += part;
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_EQ(work_shares(*problem_, fast_two())[kStray], 0);
}

TEST_F(LeaveOut, OthersTakeOverWhatADeviceSharedOrHadAlone) {
  const std::vector<DeviceId> out = {kStray};
  const auto shared = without_devices(*problem_, even_all_reduce(*problem_), out);
  ASSERT_TRUE(shared);
  for (const decide::UnitDecision& unit : shared->units) {
    EXPECT_EQ(unit.replicas.size(), 6u);
  }
  const auto alone = without_devices(*problem_, with_stray(), out);
  ASSERT_TRUE(alone);
  EXPECT_EQ(*alone, fast_two());
  const std::vector<DeviceId> both = {DeviceId(0), DeviceId(1)};
  EXPECT_FALSE(without_devices(*problem_, fast_two(), both));
}

TEST_F(LeaveOut, AStrayDeviceGoesAndTheStepIsNoLonger) {
  const decide::Strategy stray = with_stray();
  const Evaluation before = evaluator_.evaluate(stray).evaluation;
  const auto fewer = tried(stray);
  ASSERT_TRUE(fewer);
  EXPECT_EQ(fewer->left_out, std::vector<DeviceId>{kStray});
  EXPECT_LE(fewer->evaluation.step, before.step);
  EXPECT_TRUE(fewer->evaluation.feasible);
  EXPECT_EQ(evaluator_.evaluate(fewer->strategy).evaluation.step, fewer->evaluation.step);
  EXPECT_EQ(work_shares(*problem_, fewer->strategy)[kStray], 0);
}

// Of all cards on slow wires, none of them is worth its wires; of the two fast ones, both are.
TEST_F(LeaveOut, WhoEarnsItsPlaceStays) {
  EXPECT_FALSE(tried(fast_two()));
  EXPECT_FALSE(tried(fast_two(), 0.01));
  const auto fewer = tried(even_all_reduce(*problem_));
  ASSERT_TRUE(fewer);
  EXPECT_GE(fewer->left_out.size(), 2u);
  for (DeviceId device : fewer->left_out) EXPECT_GE(device.value(), 2u);
}

TEST_F(LeaveOut, MoreMayGoWithinATolerance) {
  const decide::Strategy stray = with_stray();
  const auto any = tried(stray, 100);
  ASSERT_TRUE(any);
  EXPECT_GT(any->left_out.size(), 1u);
}

TEST_F(LeaveOut, KeepsToItsNumberOfTries) {
  const decide::Strategy even = even_all_reduce(*problem_);
  const Evaluation evaluation = evaluator_.evaluate(even).evaluation;
  const std::int64_t before = evaluator_.evaluations();
  leave_out(evaluator_, even, evaluation, {.most = 3});
  EXPECT_EQ(evaluator_.evaluations(), before + 3);
  EXPECT_FALSE(leave_out(evaluator_, even, evaluation, {.most = -1}));
  EXPECT_FALSE(
      leave_out(evaluator_, even, {.step = evaluation.step, .feasible = false}, {.most = 3}));
}

}  // namespace
}  // namespace heterog::search
