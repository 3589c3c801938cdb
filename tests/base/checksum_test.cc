// The checksum is XXH3, as others compute it.
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"

namespace heterog {
namespace {

// Of nothing: as the library's description has it.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(checksum(nullptr, 0), 0x2d06800538d394c2u);
  EXPECT_EQ(Checksum().value(), 0x2d06800538d394c2u);
}

TEST(Checksum, DoesNotDependOnTheCuts) {
  Rng rng(1);
  std::string bytes(5000, '\0');
  for (char& c : bytes) c = static_cast<char>(rng.below(256));
  const std::uint64_t whole = checksum(bytes.data(), bytes.size());
  for (int round = 0; round < 20; ++round) {
    Checksum sum;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t count = std::min<std::size_t>(rng.below(700), bytes.size() - at);
      sum.add(bytes.data() + at, count);
      at += count;
    }
    EXPECT_EQ(sum.value(), whole);
  }
}

TEST(Checksum, SeesEveryBit) {
  std::string bytes(300, 'x');
  const std::uint64_t whole = checksum(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(checksum(bytes.data(), bytes.size()), whole) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace heterog
