// A plan that gives priorities of its own is dispatched by them, in the simulator as in the
// reference, and the checker knows.
#include <gtest/gtest.h>

#include <utility>

#include "sim/check_timeline.h"
#include "sim/random_plan.h"
#include "sim/reference_simulator.h"
#include "sim/simulator.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using decide::OrderPolicy;

// Any order of tasks at all, those that wait for each other included.
TEST(Priority, IsFollowedAsTheReferenceDoes) {
  Rng rng(5);
  int other = 0, told = 0;
  for (int round = 0; round < 3000; ++round) {
    Plan plan = random_plan(rng);
    const SimResult by_rank = simulate(plan, OrderPolicy::kRank);
    shuffle_priorities(plan, rng);
    const SimResult result = simulate(plan, OrderPolicy::kPriority);
    const SimResult reference = reference_simulate(plan, OrderPolicy::kPriority);
    ASSERT_EQ(result.start, reference.start) << "round " << round;
    ASSERT_EQ(result.end, reference.end) << "round " << round;
    ASSERT_EQ(result.peak_bytes, reference.peak_bytes) << "round " << round;
    const auto wrong = check_timeline(plan, result, OrderPolicy::kPriority);
    ASSERT_TRUE(wrong.empty()) << "round " << round << ": " << wrong[0];
    if (result.start == by_rank.start) continue;
    ++other;
    told += !check_timeline(plan, by_rank, OrderPolicy::kPriority).empty();
  }
  // The checker lets pass what happens at moments at which tasks of no time end.
  EXPECT_GT(told, other / 2);
  EXPECT_GT(other, 500);
}

}  // namespace
}  // namespace heterog::sim
