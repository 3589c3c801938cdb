// Slices of the batch, by hand and in general.
#include "decide/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heterog::decide {
namespace {

DeviceId d(std::size_t i) { return DeviceId(i); }

// 10 · (2, 1, 1) / 4 = 5, 2.5, 2.5: one left, equal remainders, the earlier gets it.
TEST(SliceBatch, LargestRemainderTiesToTheEarlier) {
  EXPECT_THAT(slice_batch({{d(0), 2}, {d(1), 1}, {d(2), 1}}, 10),
              testing::ElementsAre(Slice{d(0), 0, 5}, Slice{d(1), 5, 8}, Slice{d(2), 8, 10}));
}

// 7 · (1, 7) / 8 = 0.875, 6.125: the one left goes to the larger remainder.
TEST(SliceBatch, WildlyUnequal) {
  EXPECT_THAT(slice_batch({{d(0), 1}, {d(1), 7}}, 7),
              testing::ElementsAre(Slice{d(0), 0, 1}, Slice{d(1), 1, 7}));
}

TEST(SliceBatch, ReplicasOfOneDeviceAreOneSlice) {
  EXPECT_THAT(slice_batch({{d(1), 1}, {d(0), 1}, {d(1), 1}}, 9),
              testing::ElementsAre(Slice{d(1), 0, 6}, Slice{d(0), 6, 9}));
}

TEST(SliceBatch, EmptySlicesAreLeftOut) {
  EXPECT_THAT(slice_batch({{d(0), 1}, {d(1), 1}, {d(2), 1}}, 2),
              testing::ElementsAre(Slice{d(0), 0, 1}, Slice{d(1), 1, 2}));
}

TEST(SliceBatch, AlwaysCoversTheBatchOnceAndIsNearItsShare) {
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    std::vector<Replica> replicas;
    double total = 0;
    const std::size_t count = 1 + rng.below(9);
    for (std::size_t r = 0; r < count; ++r) {
      replicas.push_back({d(r), 0.1 + rng.uniform() * 8});
      total += replicas.back().weight;
    }
    const auto batch = static_cast<std::int64_t>(1 + rng.below(300));
    std::int64_t at = 0;
    for (const Slice& slice : slice_batch(replicas, batch)) {
      EXPECT_EQ(slice.begin, at);
      EXPECT_GT(slice.size(), 0);
      const double exact =
          static_cast<double>(batch) * replicas[slice.device.value()].weight / total;
      EXPECT_LE(std::abs(static_cast<double>(slice.size()) - exact), 1.0);
      at = slice.end;
    }
    EXPECT_EQ(at, batch);
  }
}

TEST(OrderPolicy, IsFoundByTheNameThatItHas) {
  for (OrderPolicy policy :
       {OrderPolicy::kRank, OrderPolicy::kFifo, OrderPolicy::kPriority, OrderPolicy::kRankQueued}) {
    EXPECT_EQ(find_order_policy(order_policy_name(policy)), policy);
  }
  EXPECT_EQ(find_order_policy("Rank"), std::nullopt);
  EXPECT_EQ(find_order_policy(""), std::nullopt);
}

}  // namespace
}  // namespace heterog::decide
