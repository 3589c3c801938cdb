// The string form of arguments.
#include "graph/value_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/model_graph.h"

namespace heterog::graph {
namespace {

Value scalar(double number, double offset) {
  return {.kind = Value::Kind::kScalar, .number = number, .offset = offset};
}

// Written with integers.
Value whole_scalar(std::int64_t number, std::int64_t offset) {
  Value value = scalar(static_cast<double>(number), static_cast<double>(offset));
  value.integer = {number, offset};
  return value;
}

Value reciprocal(double number, Affine over) {
  return {.kind = Value::Kind::kReciprocal, .integer = over, .number = number};
}

TEST(ValueText, Parses) {
  EXPECT_EQ(parse_value("%12"), tensor_value(TensorId(12)));
  EXPECT_EQ(parse_value("#4B+1"), size_value(4, 1));
  EXPECT_EQ(parse_value("$4B"), whole_scalar(4, 0));
  EXPECT_EQ(parse_value("$-B+3"), whole_scalar(-1, 3));
  EXPECT_EQ(parse_value("$4.0B"), scalar(4, 0));
  EXPECT_EQ(parse_value("$4B+0.5"), scalar(4, 0.5));
  EXPECT_EQ(parse_value("$0.1B"), scalar(0.1, 0));
  EXPECT_EQ(parse_value("$1e-05B-2.5"), scalar(1e-5, -2.5));
  EXPECT_EQ(parse_value("$B"), whole_scalar(1, 0));
  EXPECT_EQ(parse_value("$1/4B"), reciprocal(1, {4, 0}));
  EXPECT_EQ(parse_value("$0.5/4B+2"), reciprocal(0.5, {4, 2}));
  EXPECT_EQ(parse_value("$2/B"), reciprocal(2, {1, 0}));
  EXPECT_EQ(parse_value(":channels_last"),
            (Value{.kind = Value::Kind::kSymbol, .text = "channels_last"}));
  EXPECT_EQ(parse_value("'trunc"), (Value{.kind = Value::Kind::kString, .text = "trunc"}));
  EXPECT_EQ(parse_value("'"), (Value{.kind = Value::Kind::kString}));
  EXPECT_EQ(parse_value(":-inf"), float_value(-INFINITY));
  EXPECT_TRUE(std::isnan(parse_value(":nan")->number));
}

TEST(ValueText, PrintsWhatParsesBack) {
  for (const char* text :
       {"%12", "#4B+1", "#B", "$0.1B", "$1e-05B-2.5", "$B", "$4B-3", "$4.0B", "$1.0B+2", "$1/4B",
        "$0.5/4B+2", ":float32", "'trunc", ":inf", ":-inf", ":nan", "#0B+7"}) {
    const auto value = parse_value(text);
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(value_text(*value), text);
  }
}

TEST(ValueText, RefusesTheRest) {
  for (const char* text :
       {"",    "x",      "%",        "%-1",     "%1x",  "%4294967295", "%99999999999",
        "#",   "#4",     "#xB",      "$",       "$4",   "$nan",        "$infB",
        "$1/", "$1/4",   "$1/0B",    "$1/0.5B", "$B/B", "$1e999B",     "$B+nan",
        ":",   ":float", ":complex", "float32"}) {
    EXPECT_FALSE(parse_value(text)) << text;
  }
  EXPECT_TRUE(parse_value("$1/2B-3"));
  EXPECT_TRUE(parse_value("$2/B-1"));  // of a variance: zero where there is one sample
  EXPECT_TRUE(parse_value("$1/B+3"));
}

}  // namespace
}  // namespace heterog::graph
