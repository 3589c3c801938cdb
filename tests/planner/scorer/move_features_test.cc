// What moves change by formula: by hand on two devices, and against sums made anew.
#include "planner/scorer/move_features.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "oracle/simulated_oracle.h"
#include "planner/baselines.h"
#include "planner/problems.h"

namespace heterog::planner {
namespace {

using compiler::SyncMethod;

Incumbent measured(const cost::Problem& problem, const compiler::Strategy& strategy) {
  ThreadPool pool(1);
  oracle::SimulatedOracle oracle(problem, pool);
  return {to_candidate(strategy), oracle.measure({&strategy, 1})[0]};
}

// One group of even all-reduce on two equal devices goes to the first of them.
class OneGroupAlone : public testing::Test {
 protected:
  void SetUp() override {
    groups_ = space::summarize_groups(*problem_);
    for (GroupId group : id_range<GroupId>(groups_.size())) {
      // In the middle, with parameters: with a seam on either side.
      if (group.value() > 0 && group.value() + 1 < groups_.size() &&
          groups_[group].parameter_bytes > 0) {
        group_ = group;
      }
      total_ += groups_[group].seconds;
    }
    ASSERT_TRUE(group_.valid());
    estimates_.begin(from_);
  }
  // Of the group, by the line through the costs of an eighth of the batch and of all.
  double seconds(double samples) const {
    double sum = 0;
    for (OpId op : problem_->grouping.members[group_]) {
      if (problem_->graph->op(op).alias) continue;
      const double all = to_seconds(problem_->costs.duration(op, DeviceTypeId(0), 16));
      const double two = to_seconds(problem_->costs.duration(op, DeviceTypeId(0), 2));
      sum += problem_->splits->sliceable[op] ? all - (16 - samples) * (all - two) / 14 : all;
    }
    return sum;
  }

  const std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("lenet5", "local-2cpu", 16);
  const Incumbent from_ = measured(*problem_, even_all_reduce(*problem_));
  space::GroupSummaries groups_;
  GroupId group_;
  double total_ = 0;
  MoveEstimates estimates_{*problem_};
};

TEST_F(OneGroupAlone, ChangesComputationMemoryAndSeamsByHand) {
  const RoughChange about =
      estimates_.change({.groups = {group_}, .replicas = Replicas{{DeviceId(0), 1}}});
  EXPECT_EQ(about.groups, std::vector{group_});
  // The first device computes 16 samples in place of 8, the second none.
  EXPECT_NEAR(about.change.compute[DeviceId(0)], seconds(16) - seconds(8), 1e-12);
  EXPECT_NEAR(about.change.compute[DeviceId(1)], -seconds(8), 1e-12);
  EXPECT_NEAR(about.change.chain, seconds(16) - seconds(8), 1e-12);
  // It had the state already, and gets the other half of the activations.
  const auto half = static_cast<double>(groups_[group_].activation_bytes) / 2;
  const auto state = static_cast<double>(groups_[group_].state_bytes());
  EXPECT_NEAR(about.change.bytes[DeviceId(0)], half, 1e-6);
  EXPECT_NEAR(about.change.bytes[DeviceId(1)], -half - state, 1e-6);
  EXPECT_EQ(about.change.seams, 2);
  EXPECT_NEAR(about.change.lone, groups_[group_].seconds / total_, 1e-12);
  // Nothing is reduced any more, nothing goes through a server, but data has to move.
  EXPECT_LT(about.change.reduces, 0);
  EXPECT_EQ(about.change.servers, 0);
  EXPECT_GT(about.change.moving, 0);
  EXPECT_NEAR(about.moved_samples, about.time / 2, 1e-12);
  EXPECT_EQ(about.devices_before, 1);
  EXPECT_EQ(about.devices_after, 0.5);
  EXPECT_FALSE(about.like_left || about.like_right);
}

TEST_F(OneGroupAlone, ToAServerChangesOnlyWhatSumsItsGradients) {
  const RoughChange about =
      estimates_.change({.groups = {group_}, .sync = SyncMethod::kParameterServer});
  EXPECT_EQ(about.change.compute[DeviceId(0)], 0);
  EXPECT_EQ(about.change.chain, 0);
  EXPECT_EQ(about.change.moving, 0);
  EXPECT_EQ(about.change.seams, 2);
  EXPECT_LT(about.change.reduces, 0);
  EXPECT_GT(about.change.servers, 0);
  EXPECT_EQ(about.to_reduce, 0);
  EXPECT_NEAR(about.to_server, about.parameters, 1e-12);
}

TEST_F(OneGroupAlone, FeaturesAreByTheStepAndByName) {
  const DrawnMove move{.move = {.groups = {group_}, .replicas = Replicas{{DeviceId(0), 1}}},
                       .kind = MoveKind::kAlike,
                       .kind_weight = 4};
  const std::vector<float> row = move_features(estimates_, from_, {&move, 1});
  ASSERT_EQ(row.size(), move_feature_count());
  std::map<std::string, double> by_name;
  for (std::size_t i = 0; i < row.size(); ++i) {
    by_name[std::string(move_feature_name(i))] = row[i];
  }
  EXPECT_EQ(by_name.size(), row.size());  // no name twice
  const double step = to_seconds(from_.measured.evaluation.step);
  const double busy = to_seconds(from_.measured.busy[DeviceId(0)]);
  EXPECT_EQ(by_name.at("kind: alike"), 1);
  EXPECT_EQ(by_name.at("kind: one group"), 0);
  EXPECT_EQ(by_name.at("helped lately"), 1);  // log2(4) / 2
  EXPECT_EQ(by_name.at("devices after"), 0.5);
  EXPECT_EQ(by_name.at("fits"), 1);
  EXPECT_NEAR(by_name.at("busiest"), busy / step, 0.02);  // equal devices, equal halves
  EXPECT_NEAR(by_name.at("taken"), std::asinh(1000 * (seconds(16) - seconds(8)) / step) / 8, 1e-6);
  EXPECT_NEAR(by_name.at("given"), std::asinh(1000 * seconds(8) / step) / 8, 1e-6);
}

// The slow way: the moved candidate's own sums, less the incumbent's.
TEST(MoveEstimates, ChangesAreTheDifferencesOfSums) {
  const auto problem = load_test_problem("resnet50", "heterog-8gpu", 64);
  Incumbent from = measured(*problem, proportional_ps(*problem));
  const MoveMaker maker(*problem);
  MoveEstimates estimates(*problem), anew(*problem);
  Rng rng(3);
  std::set<MoveKind> tested;
  for (int i = 0; i < 400; ++i) {
    const auto kind = static_cast<MoveKind>(rng.below(kMoveKindCount));
    const Move move = maker.propose(from, kind, rng);
    Incumbent next{apply(from.candidate, move), from.measured};
    estimates.begin(from);
    const RoughChange about = estimates.change(move);
    const RoughStep before = estimates.incumbent();
    anew.begin(next);
    const RoughStep& after = anew.incumbent();
    for (DeviceId device : problem->cluster->device_ids()) {
      EXPECT_NEAR(about.change.compute[device], after.compute[device] - before.compute[device],
                  1e-9);
      EXPECT_NEAR(about.change.bytes[device], after.bytes[device] - before.bytes[device], 1);
    }
    EXPECT_NEAR(about.change.chain, after.chain - before.chain, 1e-9);
    EXPECT_NEAR(about.change.reduces, after.reduces - before.reduces, 1e-9);
    EXPECT_NEAR(about.change.servers, after.servers - before.servers, 1e-9);
    EXPECT_NEAR(about.change.late_sync, after.late_sync - before.late_sync, 1e-9);
    EXPECT_NEAR(about.change.moving, after.moving - before.moving, 1e-9);
    EXPECT_NEAR(about.change.lone, after.lone - before.lone, 1e-9);
    EXPECT_EQ(about.change.seams, after.seams - before.seams);
    if (!about.groups.empty()) tested.insert(kind);
    if (rng.below(4) == 0) from.candidate = next.candidate;  // ever further from the baseline
  }
  EXPECT_GE(tested.size(), 9u);  // all but schedule and, where memory is free, recomputation
}

}  // namespace
}  // namespace heterog::planner
