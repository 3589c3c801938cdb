// Masks of dropout: the same for an element wherever it is computed, and random enough.
#include "runtime/random.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/slices.h"

namespace heterog::runtime {
namespace {

constexpr RandomStream kStream{7, 3, OpId(11)};

at::Tensor whole_mask(const std::vector<std::int64_t>& sizes, double rate) {
  return keep_mask(kStream, rate, sizes, Cut{}, at::kCPU);
}

// Along any dimension, also where it holds the batch inside (sequence first: 3 × batch).
TEST(KeepMask, OfASliceIsASliceOfTheMask) {
  const std::int64_t batch = 8;
  for (const auto& [dim, outer] : {std::pair{0, 1}, {1, 1}, {2, 1}, {0, 3}, {1, 3}}) {
    std::vector<std::int64_t> sizes = {5, 4, 2};
    sizes[static_cast<std::size_t>(dim)] = 2 * outer * batch;
    const at::Tensor whole = whole_mask(sizes, 0.4);
    for (const auto& [begin, count] : {std::pair{0, 3}, {3, 5}, {7, 1}}) {
      const Cut cut{static_cast<std::uint8_t>(dim), outer, batch, begin, count};
      sizes[static_cast<std::size_t>(dim)] = 2 * outer * count;
      const at::Tensor slice = keep_mask(kStream, 0.4, sizes, cut, at::kCPU);
      EXPECT_TRUE(slice.equal(cut_samples(whole, cut))) << dim << " " << outer << " " << begin;
      // What devices without a kernel of ours compute.
      EXPECT_TRUE(slice.equal(keep_mask_by_tensors(kStream, 0.4, sizes, cut, at::kCPU)));
    }
  }
}

TEST(KeepMask, KeepsItsShareAndChangesWithEveryKey) {
  const std::vector<std::int64_t> sizes = {1000, 1000};
  for (const double rate : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const double kept = whole_mask(sizes, rate).to(at::kDouble).mean().item<double>();
    // Five standard deviations of a million draws.
    EXPECT_NEAR(kept, 1 - rate, 5 * std::sqrt(rate * (1 - rate) / 1e6) + 1e-12) << rate;
  }
  const at::Tensor mask = whole_mask(sizes, 0.5);
  for (const RandomStream& other :
       {RandomStream{8, 3, OpId(11)}, {7, 4, OpId(11)}, {7, 3, OpId(12)}}) {
    const at::Tensor theirs = keep_mask(other, 0.5, sizes, Cut{}, at::kCPU);
    const double alike = theirs.eq(mask).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(alike, 0.5, 5 * 0.5e-3);
  }
  // Neighbours along both dimensions are independent.
  for (const int dim : {0, 1}) {
    const double alike =
        mask.narrow(dim, 0, 999).eq(mask.narrow(dim, 1, 999)).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(alike, 0.5, 5 * 0.5e-3);
  }
}

}  // namespace
}  // namespace heterog::runtime
