// Moves of samples by busy time.
#include "search/moves/rebalance.h"

#include <gtest/gtest.h>

#include <memory>

#include "search/problems.h"
#include "search/starts/baselines.h"
#include "space/cluster_summary.h"

namespace heterog::search {
namespace {

double total(const Replicas& replicas) {
  double sum = 0;
  for (const decide::Replica& replica : replicas) sum += replica.weight;
  return sum;
}

TEST(Moved, KeepsEverySampleAndGivesNoMoreThanThereIs) {
  const Replicas even = {{DeviceId(0), 1}, {DeviceId(2), 1}};
  const DeviceId giver(0), taker(3);
  EXPECT_EQ(moved(even, {&giver, 1}, {&taker, 1}, 3, 16),
            (Replicas{{DeviceId(0), 5}, {DeviceId(2), 8}, {DeviceId(3), 3}}));
  EXPECT_EQ(moved(even, {&giver, 1}, {&taker, 1}, 100, 16),
            (Replicas{{DeviceId(2), 8}, {DeviceId(3), 8}}));
  const DeviceId absent(1);
  EXPECT_TRUE(moved(even, {&absent, 1}, {&taker, 1}, 3, 16).empty());
  // Two give three each, and two share the six.
  const std::vector<DeviceId> givers = {DeviceId(0), DeviceId(2)};
  const std::vector<DeviceId> takers = {DeviceId(1), DeviceId(3)};
  EXPECT_EQ(moved(even, givers, takers, 3, 16),
            (Replicas{{DeviceId(0), 5}, {DeviceId(1), 3}, {DeviceId(2), 5}, {DeviceId(3), 3}}));
}

class RebalanceTest : public testing::Test {
 protected:
  RebalanceTest() {
    incumbent_.strategy = even_all_reduce(*problem_);
    incumbent_.measured.peak_bytes.assign(problem_->cluster->device_count(), 1);
    incumbent_.measured.busy.assign(problem_->cluster->device_count(), 0);
    // What each would compute with even shares.
    const space::ModelSeconds seconds(*problem_);
    for (DeviceId device : problem_->cluster->device_ids()) {
      incumbent_.measured.busy[device] = to_nanoseconds(seconds(device, problem_->batch / 8));
    }
  }
  const Replicas& even() const { return decision_of(incumbent_.strategy, GroupId(0)).replicas; }

  const std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("resnet50", "heterog-8gpu", 512);
  const space::GroupSummaries groups_ = space::summarize_groups(*problem_);
  Incumbent incumbent_;
};

TEST_F(RebalanceTest, LevelledDevicesComputeForAsLong) {
  const Replicas after = level(*problem_, groups_, incumbent_, even(), 1);
  EXPECT_EQ(total(after), 512);
  const space::ModelSeconds seconds(*problem_);
  double least = 1e30, most = 0;
  for (const decide::Replica& replica : after) {
    const double busy = seconds(replica.device, static_cast<std::int64_t>(replica.weight));
    least = std::min(least, busy);
    most = std::max(most, busy);
  }
  // Even shares are further apart: V100 and 1080 Ti.
  EXPECT_LT(most / least, 1.1);
  EXPECT_GT(seconds(DeviceId(2), 64) / seconds(DeviceId(0), 64), 1.3);
}

TEST_F(RebalanceTest, GivesFromTheBusyToTheIdleButNotToTheFull) {
  const DeviceId full(0);  // a V100, which is the idlest
  incumbent_.measured.peak_bytes[full] = problem_->cluster->device(full).memory_bytes;
  Rng rng(7);
  int moves = 0;
  for (int i = 0; i < 300; ++i) {
    const auto move = rebalance(*problem_, groups_, incumbent_, GroupId(0), rng);
    if (!move) continue;
    ++moves;
    const decide::Strategy next = apply(incumbent_.strategy, *move);
    for (const Replicas& replicas : distinct_replicas(next)) {
      ASSERT_EQ(in_samples(replicas, 512), replicas == even() ? in_samples(even(), 512) : replicas);
      ASSERT_EQ(total(in_samples(replicas, 512)), 512);
    }
  }
  EXPECT_GT(moves, 100);
  const Replicas after = level(*problem_, groups_, incumbent_, even(), 1);
  for (const decide::Replica& replica : after) {
    if (replica.device == full) {
      EXPECT_LE(replica.weight, 65);
    }
  }
  // Nothing to go by.
  incumbent_.measured.busy = {};
  EXPECT_FALSE(rebalance(*problem_, groups_, incumbent_, GroupId(0), rng));
}

}  // namespace
}  // namespace heterog::search
