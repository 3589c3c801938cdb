// Splits of synchronisation: never longer, few plans, and better than either method alone where
// large and small gradients are among one model's.
#include "search/starts/sync_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "decide/decisions.h"
#include "oracle/simulated_oracle.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using decide::Strategy;
using decide::SyncMethod;

class SyncSplit : public testing::Test {
 protected:
  void split(const std::string& model, const std::string& cluster, std::int64_t batch,
             const Strategy& start, bool coarse = false) {
    if (!problem_) problem_ = load_test_problem(model, cluster, batch);
    ThreadPool pool(1);
    oracle::SimulatedOracle oracle(*problem_, pool);
    BatchEvaluator evaluator(oracle);
    groups_ = space::summarize_groups(*problem_);
    before_ = evaluator.evaluate(start).evaluation;
    split_ = split_syncs(evaluator, groups_, {start, before_}, coarse);
    evaluations_ = evaluator.evaluations() - 1;
    EXPECT_FALSE(better(before_, split_.evaluation));
    EXPECT_EQ(evaluator.evaluate(split_.strategy).evaluation.step, split_.evaluation.step);
  }
  // Parameters of the groups whose gradients servers sum up, and the others.
  std::pair<Bytes, Bytes> served_and_reduced() const {
    std::pair<Bytes, Bytes> bytes;
    for (GroupId group : id_range<GroupId>(groups_.size())) {
      const auto& unit = split_.strategy.units[UnitId(group.value())];
      if (unit.replicas.size() < 2) continue;
      (unit.sync == SyncMethod::kParameterServer ? bytes.first : bytes.second) +=
          groups_[group].parameter_bytes;
    }
    return bytes;
  }

  std::unique_ptr<const cost::Problem> problem_;
  space::GroupSummaries groups_;
  Evaluation before_;
  Tried split_;
  std::int64_t evaluations_ = 0;
};

TEST_F(SyncSplit, BeatsBothMethodsAlone) {
  problem_ = load_test_problem("densenet121", "heterog-8gpu", 256);
  const Strategy reduced = proportional_all_reduce(*problem_);
  split("densenet121", "heterog-8gpu", 256, reduced);
  EXPECT_LE(evaluations_, 11);
  EXPECT_LT(to_seconds(split_.evaluation.step), 0.98 * to_seconds(before_.step));
  const auto [served, all_reduced] = served_and_reduced();
  EXPECT_GT(served, 0);
  EXPECT_GT(all_reduced, 0);
  EXPECT_EQ(split_.strategy.units[UnitId(0)].replicas, reduced.units[UnitId(0)].replicas);

  const Evaluation all_reduce = split_.evaluation;
  split("densenet121", "heterog-8gpu", 256, proportional_ps(*problem_));
  EXPECT_LT(to_seconds(split_.evaluation.step), 0.98 * to_seconds(before_.step));
  EXPECT_EQ(split_.evaluation.step, all_reduce.step);  // where it began does not matter
}

// Servers take largest gradients first, or the last: those of the first groups never come alone.
TEST_F(SyncSplit, LeavesTheFirstAndSmallestToAllReduce) {
  problem_ = load_test_problem("resnet50", "heterog-8gpu", 192);
  split("resnet50", "heterog-8gpu", 192, proportional_all_reduce(*problem_));
  Bytes smallest_served = Bytes{1} << 60, largest_reduced = 0;
  GroupId::Value first_served = ~GroupId::Value{0}, last_reduced = 0;
  for (GroupId group : id_range<GroupId>(groups_.size())) {
    const Bytes bytes = groups_[group].parameter_bytes;
    if (bytes == 0) continue;
    if (split_.strategy.units[UnitId(group.value())].sync == SyncMethod::kParameterServer) {
      smallest_served = std::min(smallest_served, bytes);
      first_served = std::min(first_served, group.value());
    } else {
      largest_reduced = std::max(largest_reduced, bytes);
      last_reduced = std::max(last_reduced, group.value());
    }
  }
  EXPECT_TRUE(largest_reduced <= smallest_served || last_reduced < first_served);
}

// On many machines few large gradients are all-reduced, many small ones served.
TEST_F(SyncSplit, LeavesTheLargestToAllReduceOnManyMachines) {
  problem_ = load_test_problem("resnet50", "mixed-64gpu", 2048);
  for (const Strategy& start : {proportional_ps(*problem_), proportional_all_reduce(*problem_)}) {
    split("resnet50", "mixed-64gpu", 2048, start, /*coarse=*/true);
    EXPECT_EQ(evaluations_, 7);
    EXPECT_LT(to_seconds(split_.evaluation.step), 0.9 * to_seconds(before_.step));
    EXPECT_EQ(split_.strategy.bucket_bytes, decide::kLargestBucketBytes);
    Bytes largest_served = 0, smallest_reduced = Bytes{1} << 60;
    for (GroupId group : id_range<GroupId>(groups_.size())) {
      const Bytes bytes = groups_[group].parameter_bytes;
      if (bytes == 0) continue;
      if (split_.strategy.units[UnitId(group.value())].sync == SyncMethod::kParameterServer) {
        largest_served = std::max(largest_served, bytes);
      } else {
        smallest_reduced = std::min(smallest_reduced, bytes);
      }
    }
    EXPECT_LE(largest_served, smallest_reduced);
    EXPECT_GT(largest_served, 0);
  }
}

TEST_F(SyncSplit, KeepsToTheBudget) {
  problem_ = load_test_problem("vgg19-tiny", "heterog-4gpu", 16);
  const Strategy start = even_all_reduce(*problem_);
  const auto groups = space::summarize_groups(*problem_);
  for (std::int64_t budget : {1, 4}) {
    ThreadPool pool(1);
    oracle::SimulatedOracle oracle(*problem_, pool);
    BatchEvaluator evaluator(oracle, {.evaluations = budget});
    const Evaluation before = evaluator.evaluate(start).evaluation;
    const Tried split = split_syncs(evaluator, groups, {start, before});
    EXPECT_EQ(evaluator.evaluations(), budget);
    EXPECT_FALSE(better(before, split.evaluation));
  }
}

TEST_F(SyncSplit, LeavesAloneWhatHasNothingToSum) {
  problem_ = load_test_problem("vgg19-tiny", "heterog-4gpu", 16);
  const Strategy single = single_device(*problem_, DeviceId(0));
  split("vgg19-tiny", "heterog-4gpu", 16, single);
  EXPECT_EQ(evaluations_, 0);
  EXPECT_EQ(split_.strategy, single);
}

}  // namespace
}  // namespace heterog::search
