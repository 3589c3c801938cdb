// Which samples a rank reads, by hand for slices, micro-batches and what runs whole.
#include "runtime/program/input_rows.h"

#include <gtest/gtest.h>

#include "decide/micro_batches.h"
#include "runtime/jobs.h"

namespace heterog::runtime {
namespace {

using Ranges = std::vector<SampleRange>;

constexpr auto kAllReduce = decide::SyncMethod::kAllReduce;

TEST(InputRows, OfADataParallelPlanAreItsSlices) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(support::tiny_mlp_graph(), 2, 8);
  const TestJob even = make_test_job(problem, weighted(*problem, {1, 1}, kAllReduce));
  EXPECT_EQ(samples_read(even.job, {DeviceId(0)}), (Ranges{{0, 4}}));
  EXPECT_EQ(samples_read(even.job, {DeviceId(1)}), (Ranges{{4, 8}}));
  EXPECT_EQ(samples_read(even.job, {DeviceId(0), DeviceId(1)}), (Ranges{{0, 8}}));
  const TestJob uneven = make_test_job(problem, weighted(*problem, {1, 3}, kAllReduce));
  EXPECT_EQ(samples_read(uneven.job, {DeviceId(0)}), (Ranges{{0, 2}}));
  EXPECT_EQ(samples_read(uneven.job, {DeviceId(1)}), (Ranges{{2, 8}}));
  const TestJob alone = make_test_job(problem, weighted(*problem, {1, 100}, kAllReduce));
  EXPECT_EQ(samples_read(alone.job, {DeviceId(0)}), Ranges{});
  EXPECT_EQ(samples_read(alone.job, {DeviceId(1)}), (Ranges{{0, 8}}));
}

TEST(InputRows, OfMicroBatchesAreARangeOfEach) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(support::tiny_mlp_graph(), 2, 8);
  const TestJob test = make_test_job(
      problem, decide::accumulate(*problem, weighted(*problem, {1, 1}, kAllReduce), 2));
  EXPECT_EQ(samples_read(test.job, {DeviceId(0)}), (Ranges{{0, 2}, {4, 6}}));
  EXPECT_EQ(samples_read(test.job, {DeviceId(1)}), (Ranges{{2, 4}, {6, 8}}));
}

TEST(InputRows, OfAllRanksAreTheBatchWhateverThePlan) {
  const std::shared_ptr<const cost::Problem> problem = decide::model_problem("lenet5-tiny", 3, 12);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const TestJob test = make_test_job(problem, random_mix(*problem, seed));
    EXPECT_EQ(samples_read(test.job, {DeviceId(0), DeviceId(1), DeviceId(2)}), (Ranges{{0, 12}}));
  }
}

}  // namespace
}  // namespace heterog::runtime
