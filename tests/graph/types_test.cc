// Names and sizes in their text form.
#include "graph/types.h"

#include <gtest/gtest.h>

#include <string>

namespace heterog::graph {
namespace {

TEST(Types, NamesAreFoundAgain) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(find_dtype(dtype_name(dtype)), dtype);
  }
  for (int i = 0; i <= static_cast<int>(TensorRole::kOutput); ++i) {
    const auto role = static_cast<TensorRole>(i);
    EXPECT_EQ(find_role(role_name(role)), role);
  }
  EXPECT_EQ(find_phase("backward"), Phase::kBackward);
  EXPECT_EQ(find_dtype("float"), std::nullopt);
  EXPECT_EQ(element_bytes(DType::kBFloat16), 2);
  EXPECT_EQ(element_bytes(DType::kInt64), 8);
  EXPECT_EQ(element_bytes(DType::kBool), 1);
}

TEST(Affine, PrintsAndParses) {
  const std::pair<Affine, std::string> cases[] = {{{1, 0}, "B"},    {{4, 0}, "4B"},
                                                  {{4, 1}, "4B+1"}, {{1, -1}, "B-1"},
                                                  {{-1, 0}, "-B"},  {{-2, 7}, "-2B+7"}};
  for (const auto& [affine, text] : cases) {
    EXPECT_EQ(affine_text(affine), text);
    EXPECT_EQ(parse_affine(text), affine) << text;
  }
  EXPECT_EQ(affine_text({0, 7}), "7");
}

TEST(Affine, RefusesWhatIsMalformedOrTooLarge) {
  for (const char* text :
       {"", "7", "b", "BB", "B4", "B+", "B-", "B+-1", "B--1", "+B", "4 B", "B+1 ", "4B+1B", "1.5B",
        "1099511627777B", "B-1099511627777", "99999999999999999999B", "--B"}) {
    EXPECT_EQ(parse_affine(text), std::nullopt) << text;
  }
  EXPECT_TRUE(parse_affine("1099511627776B"));  // 2^40
}

}  // namespace
}  // namespace heterog::graph
