// Typed ids and compressed rows.
#include "base/csr.h"

#include <gtest/gtest.h>

namespace heterog {
namespace {

using RowId = Id<struct RowTag>;

TEST(Ids, AreInvalidUntilGiven) {
  EXPECT_FALSE(RowId().valid());
  EXPECT_TRUE(RowId(0).valid());
  EXPECT_EQ(RowId(3).value(), 3u);
  EXPECT_LT(RowId(3), RowId(4));
}

TEST(Csr, RowsInOrderOfAppending) {
  Csr<RowId, int> csr;
  csr.push_row(std::vector<int>{1, 2});
  csr.end_row();
  csr.push_row(std::vector<int>{3});
  ASSERT_EQ(csr.rows(), 3u);
  EXPECT_EQ(csr[RowId(0)].size(), 2u);
  EXPECT_TRUE(csr[RowId(1)].empty());
  EXPECT_EQ(csr[RowId(2)][0], 3);
}

TEST(Csr, FromPairsKeepsTheirOrderWithinARow) {
  const auto csr =
      Csr<RowId, int>::from_pairs(3, {{RowId(2), 5}, {RowId(0), 7}, {RowId(2), 4}, {RowId(0), 6}});
  EXPECT_EQ(csr.values(), (std::vector<int>{7, 6, 5, 4}));
  EXPECT_TRUE(csr[RowId(1)].empty());
  EXPECT_EQ(csr[RowId(2)][1], 4);
}

#ifdef HETEROG_CHECKS
TEST(Csr, AnInvalidRowIsABug) {
  const auto csr = Csr<RowId, int>::from_pairs(1, {{RowId(0), 5}});
  EXPECT_THROW(csr[RowId()], Error);
  EXPECT_THROW(csr[RowId(1)], Error);
}
#endif

}  // namespace
}  // namespace heterog
