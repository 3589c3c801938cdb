// The generator is the same on every machine, and its streams differ.
#include "base/rng.h"

#include <gtest/gtest.h>

#include "base/hash.h"

namespace heterog {
namespace {

// First output of splitmix64 seeded with 0, from its authors' reference code.
TEST(Rng, MixIsSplitmix64) { EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafULL); }

TEST(Rng, SameSeedSameSequence) {
  Rng a(7), b(7), c(8);
  const auto first = a();
  EXPECT_EQ(first, b());
  EXPECT_NE(first, c());
}

TEST(Rng, SplitsAreIndependentOfUse) {
  const Rng rng(7);
  Rng one = rng.split(1), again = rng.split(1), two = rng.split(2);
  const auto first = one();
  EXPECT_EQ(first, again());
  EXPECT_NE(first, two());
}

TEST(Rng, StateGoesOnWhereItWasTaken) {
  Rng a(7);
  a();
  Rng b(0);
  b.set_state(a.state());
  EXPECT_EQ(a(), b());
}

TEST(Rng, RangesAreKept) {
  Rng rng(7);
  int low = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = rng.uniform();
    EXPECT_TRUE(u >= 0 && u < 1);
    const auto k = rng.below(10);
    EXPECT_LT(k, 10u);
    low += k == 0;
  }
  EXPECT_NEAR(low, 1000, 150);  // five standard deviations
}

TEST(Hash, DependsOnOrderAndBoundaries) {
  const auto hash = [](auto... parts) {
    Hasher hasher;
    (hasher.add(std::string_view(parts)), ...);
    return hasher.value();
  };
  EXPECT_EQ(hash("a", "b"), hash("a", "b"));
  EXPECT_NE(hash("a", "b"), hash("b", "a"));
  EXPECT_NE(hash("ab", ""), hash("a", "b"));
  EXPECT_EQ(hash_text(0xabc), "0000000000000abc");
}

}  // namespace
}  // namespace heterog
