// Columns line up whatever bytes their cells hold; amounts keep their unit.
#include "explain/table.h"

#include <gtest/gtest.h>

#include "explain/amounts.h"

namespace heterog::explain {
namespace {

TEST(Table, AlignsTheFirstColumnLeftAndTheOthersRight) {
  Table table({"device", "busy"});
  table.add_row({"a", "1.0 ms"});
  table.add_row({"longer name", "-"});
  EXPECT_EQ(table.text(),
            "device         busy\n"
            "a            1.0 ms\n"
            "longer name       -\n");
}

// "é" is one character of two bytes.
TEST(Table, CountsCharactersNotBytes) {
  Table table({"é", "b"});
  table.add_row({"ab", "é"});
  EXPECT_EQ(table.text(), "é   b\nab  é\n");
}

TEST(Table, LeavesNoSpacesAtTheEndOfALine) {
  Table table({"name", "what"});
  table.add_row({"a", ""});
  EXPECT_EQ(table.text(), "name  what\na\n");
}

TEST(Amounts, AreDecimalAndInTheUnitThatFits) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1'000), "1.0 kB");
  EXPECT_EQ(bytes_text(125'240'000), "125.2 MB");
  EXPECT_EQ(bytes_text(10'524'000'000), "10.52 GB");
  EXPECT_EQ(gigabytes_text(5'000'000), "0.01 GB");
  EXPECT_EQ(milliseconds_text(0.41234), "412.3 ms");
}

// A step of 2 s that takes 1 s is twice as fast: +100 %; one of 1 s that takes 2 s, -50 %.
TEST(Amounts, SpeedUpIsOverTheNewTime) {
  EXPECT_EQ(speedup_text(2, 1), "+100.0 %");
  EXPECT_EQ(speedup_text(1, 2), "-50.0 %");
}

}  // namespace
}  // namespace heterog::explain
