// What would fit, where memory is a formula that the test knows.
#include "search/answers/what_fits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "search/problems.h"

namespace heterog::search {
namespace {

// Every strategy lacks memory on the first device if a micro-batch of it has more than `most`
// samples; of one that recomputes, more than twice as many.
class ByMicroBatch final : public oracle::Oracle {
 public:
  ByMicroBatch(const cost::Problem& problem, std::int64_t most) : problem_(problem), most_(most) {}
  std::vector<oracle::Measured> measure(std::span<const decide::Strategy> strategies) override {
    std::vector<oracle::Measured> answers;
    for (const decide::Strategy& strategy : strategies) {
      const bool again = strategy.units[UnitId(0)].recompute;
      const std::int64_t samples =
          (problem_.batch + strategy.micro_batches - 1) / strategy.micro_batches;
      IdVector<DeviceId, Bytes> peaks(problem_.cluster->device_count(), 1);
      if (samples > most_ * (again ? 2 : 1)) {
        peaks[DeviceId(0)] = problem_.cluster->device(DeviceId(0)).memory_bytes + 1;
      }
      answers.push_back(oracle::judge(problem_, problem_.batch, std::move(peaks)));
    }
    return answers;
  }
  const cost::Problem& problem() const override { return problem_; }

 private:
  const cost::Problem& problem_;
  std::int64_t most_;
};

class WhatFitsTest : public testing::Test {
 protected:
  static std::unique_ptr<const cost::Problem> problem_at(std::int64_t batch) {
    return load_test_problem("vgg19-tiny", "heterog-4gpu", batch);
  }
  static WhatFits fits(std::int64_t most, const graph::KnownBatches& known) {
    return what_fits(*problem_at(32), known,
                     {.problem_at = problem_at, .oracle_of = [most](const cost::Problem& problem) {
                        return std::make_unique<ByMicroBatch>(problem, most);
                      }});
  }
};

TEST_F(WhatFitsTest, FindsTheLargestBatchOfEachWay) {
  const WhatFits found = fits(11, {});
  EXPECT_EQ(found.asked, 32);
  ASSERT_TRUE(found.whole && found.micro_batches && found.recomputing);
  EXPECT_EQ(found.whole->batch, 11);
  EXPECT_EQ(found.whole->micro_batches, 1);
  // 32 in 2 are 16 samples, in 4 they are 8.
  EXPECT_EQ(found.micro_batches->batch, 32);
  EXPECT_EQ(found.micro_batches->micro_batches, 4);
  EXPECT_EQ(found.recomputing->batch, 22);
}

TEST_F(WhatFitsTest, KeepsToBatchesOfTheGraph) {
  const WhatFits found = fits(11, {.ranges = {{2, 4}, {9, 9}, {16, 16}, {24, {}}}});
  ASSERT_TRUE(found.whole && found.recomputing);
  EXPECT_EQ(found.whole->batch, 9);
  EXPECT_EQ(found.recomputing->batch, 16);
}

TEST_F(WhatFitsTest, SaysWhereNothingDoes) {
  const WhatFits found = fits(0, {});
  EXPECT_FALSE(found.whole || found.micro_batches || found.recomputing);
}

}  // namespace
}  // namespace heterog::search
