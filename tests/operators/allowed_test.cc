// The table of allowed overloads, as text and as look-ups. What PyTorch says of them is held
// against it in tests/runtime/operators_test.cc.
#include "operators/allowed.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace heterog::operators {
namespace {

TEST(Allowed, AreTheOverloadsOfTheTable) {
  const std::vector<std::string> all = allowed_overloads();
  EXPECT_GT(all.size(), 500u);
  for (const std::string& type : all) EXPECT_TRUE(is_allowed(type)) << type;
  for (const char* type : {"aten.mm.default", "aten.add.Tensor", "aten.zeros_like.default"}) {
    EXPECT_EQ(std::count(all.begin(), all.end(), type), 1) << type;
  }
}

TEST(Allowed, AreWholeNames) {
  for (const char* type : {"", "aten", "aten.mm", "mm.default", "aten.mm.", "aten.mm.default.",
                           "aten.add", "aten.add.Tensor Scalar", "mine.mm.default"}) {
    EXPECT_FALSE(is_allowed(type)) << type;
  }
}

}  // namespace
}  // namespace heterog::operators
