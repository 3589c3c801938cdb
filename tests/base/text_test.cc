// Arbitrary bytes become one printable line.
#include "base/text.h"

#include <gtest/gtest.h>

namespace heterog {
namespace {

TEST(Printable, KeepsText) {
  EXPECT_EQ(printable("fc.weight 7"), "fc.weight 7");
  EXPECT_EQ(printable("größe ≤ 🙂"), "größe ≤ 🙂");
}

TEST(Printable, ReplacesControlsAndWhatIsNotUtf8) {
  EXPECT_EQ(printable("a\nb\x1b[31m"), "a?b?[31m");
  EXPECT_EQ(printable("\xff\xfe"), "??");
  EXPECT_EQ(printable("\xc0\xaf"), "??");       // overlong '/'
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");  // a surrogate
  EXPECT_EQ(printable("\xe2\x89"), "??");       // cut off
  EXPECT_EQ(printable("\xc2\x85"), "?");        // next line, a C1 control
  EXPECT_EQ(printable(std::string_view("\0", 1)), "?");
}

TEST(Printable, CutsWholeCharacters) {
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("ab≤", 4), "ab...");
}

}  // namespace
}  // namespace heterog
