// Graphs of one step on inputs of other sizes, and those that are of another step.
#include "graph/same_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::GraphMaker;
using support::kB;
using support::n;
using testing::HasSubstr;

struct Form {
  std::int64_t words = 4;
  std::int64_t hidden = 3;
  std::string last = "aten.relu.default";
  std::int64_t mask = 4;
  Affine samples = kB;
  bool keeps_dimension = false;
};

// x [B, words, 5] · weight, a table of the length added, and one op more.
ModelGraph step_of(const Form& form) {
  GraphMaker maker("words");
  const TensorId x = maker.input("x", {form.samples, n(form.words), n(5)});
  const TensorId weight = maker.parameter("weight", {n(5), n(form.hidden)});
  const TensorId mask = maker.buffer("mask", {n(form.mask), n(1)});
  const GraphMaker::Shape shape = {form.samples, n(form.words), n(form.hidden)};
  const TensorId product =
      maker.op("aten.matmul.default", {tensor_value(x), tensor_value(weight)}, shape);
  const TensorId masked =
      maker.op("aten.add.Tensor", {tensor_value(product), tensor_value(mask)}, shape);
  const TensorId last = maker.op(form.last, {tensor_value(masked)}, shape);
  Value keeps{.kind = Value::Kind::kBool, .integer = {0, form.keeps_dimension ? 1 : 0}};
  maker.loss(maker.op("aten.sum.dim_IntList",
                      {tensor_value(last), list_value({int_value(form.words - 1)}), keeps}, {},
                      {.role = TensorRole::kOutput}));
  return std::move(maker).build();
}

TEST(SameStep, MayHaveOtherSizes) {
  EXPECT_EQ(difference_beside_sizes(step_of({}), step_of({})), "");
  EXPECT_EQ(difference_beside_sizes(step_of({}), step_of({.words = 9, .mask = 9})), "");
}

TEST(SameStep, HasTheSameOpsOnTheSameTensors) {
  const auto difference = [](const Form& other) {
    return difference_beside_sizes(step_of({}), step_of(other));
  };
  EXPECT_THAT(difference({.last = "aten.tanh.default"}),
              HasSubstr("op 2 is 'relu' (aten.relu.default) in one, 'tanh' (aten.tanh.default)"));
  EXPECT_THAT(difference({.hidden = 4}), HasSubstr("'weight' has another shape"));
  EXPECT_THAT(difference({.samples = n(4)}), HasSubstr("tensor 0 is 'x'"));
  EXPECT_THAT(difference({.keeps_dimension = true}), HasSubstr("has other arguments"));
  EXPECT_THAT(difference_beside_sizes(step_of({}), support::tiny_mlp_graph()),
              HasSubstr("op 0 is"));
}

}  // namespace
}  // namespace heterog::graph
