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

TEST(Csr, SortsRowsAndDropsRepeats) {
  Csr<RowId, int> csr;
  csr.push_row(std::vector<int>{3, 1, 3, 3});
  csr.end_row();
  csr.push_row(std::vector<int>{2, 2});
  csr.push_row(std::vector<int>{5, 4});
  csr.sort_and_unique_rows();
  Csr<RowId, int> expected;
  expected.push_row(std::vector<int>{1, 3});
  expected.end_row();
  expected.push_row(std::vector<int>{2});
  expected.push_row(std::vector<int>{4, 5});
  EXPECT_EQ(csr, expected);
}

TEST(Csr, TurnsRowsAround) {
  using ValueId = Id<struct ValueTag>;
  Csr<RowId, ValueId> csr;
  csr.push_row(std::vector{ValueId(2), ValueId(0)});
  csr.end_row();
  csr.push_row(std::vector{ValueId(2)});
  Csr<ValueId, RowId> turned;
  turned.push_row(std::vector{RowId(7)});  // what it held is gone
  turned.assign_transposed(csr, 4);
  ASSERT_EQ(turned.rows(), 4u);
  EXPECT_EQ(turned[ValueId(0)].size(), 1u);
  EXPECT_TRUE(turned[ValueId(1)].empty());
  ASSERT_EQ(turned[ValueId(2)].size(), 2u);
  EXPECT_EQ(turned[ValueId(2)][0], RowId(0));
  EXPECT_EQ(turned[ValueId(2)][1], RowId(2));
  EXPECT_TRUE(turned[ValueId(3)].empty());
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
