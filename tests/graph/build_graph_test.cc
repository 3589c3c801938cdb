// Each check of a collected graph, by the message that it gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::kB;
using support::n;
using testing::HasSubstr;

// x → relu → y, changed by `change` before it is built; returns the message of the error.
struct Parts {
  std::vector<GraphBuilder::TensorSpec> tensors;
  std::vector<GraphBuilder::OpSpec> ops;
  TensorId loss;
};

std::string error_of(const std::function<void(Parts&)>& change) {
  Parts parts;
  parts.tensors = {
      {.name = "x", .role = TensorRole::kInput, .shape = {kB, n(4)}},
      {.name = "w", .role = TensorRole::kParameter, .shape = {n(4)}},
      {.name = "y", .shape = {kB, n(4)}},
      {.name = "w2", .role = TensorRole::kOutput, .shape = {n(4)}, .replaces = TensorId(1)},
      {.name = "g", .shape = {n(4)}}};
  parts.ops = {{.name = "mul",
                .type = "aten.mul.Tensor",
                .args = {tensor_value(TensorId(0)), tensor_value(TensorId(1))},
                .outputs = {TensorId(2)}},
               {.name = "sum",
                .type = "aten.sum.dim_IntList",
                .phase = Phase::kBackward,
                .args = {tensor_value(TensorId(2)), list_value({int_value(0)})},
                .outputs = {TensorId(4)},
                .forward = OpId(0)},
               {.name = "sub",
                .type = "aten.sub.Tensor",
                .phase = Phase::kUpdate,
                .args = {tensor_value(TensorId(1)), tensor_value(TensorId(4))},
                .outputs = {TensorId(3)}}};
  change(parts);
  GraphBuilder builder("test");
  for (auto& tensor : parts.tensors) builder.add_tensor(std::move(tensor));
  for (auto& op : parts.ops) builder.add_op(std::move(op));
  builder.set_loss(parts.loss);
  try {
    std::move(builder).build("f.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(BuildGraph, TheUnchangedGraphIsFine) {
  EXPECT_EQ(error_of([](Parts&) {}), "no error");
}

TEST(BuildGraph, Names) {
  EXPECT_EQ(error_of([](Parts& p) { p.tensors[2].name = "x"; }),
            "f.json: tensors[2] (x).name: another tensor has the same name");
  EXPECT_EQ(error_of([](Parts& p) { p.ops[1].name = "mul"; }),
            "f.json: ops[1] (mul).name: another op has the same name");
  EXPECT_THAT(error_of([](Parts& p) { p.ops[1].name = ""; }), HasSubstr("expected a name"));
  for (const char* type : {"", "relu", "aten.relu", "aten..default", "aten.relu.default.x",
                           "aten.re lu.default", "aten.1relu.default", "aten.relu."}) {
    EXPECT_THAT(error_of([&](Parts& p) { p.ops[0].type = type; }),
                HasSubstr("f.json: ops[0] (mul).op: unknown operator \"" + std::string(type) +
                          "\", expected namespace.operator.overload"));
  }
}

TEST(BuildGraph, Sizes) {
  EXPECT_EQ(error_of([](Parts& p) { p.tensors[0].shape[1] = n(-4); }),
            "f.json: tensors[0] (x).shape: the size -4 is negative for some batch, expected 0 or "
            "more for every B >= 1");
  EXPECT_THAT(error_of([](Parts& p) {
                p.tensors[0].shape[0] = {1, -2};
              }),
              HasSubstr("the size B-2 is negative"));
  EXPECT_THAT(error_of([](Parts& p) {
                p.tensors[0].shape[0] = {-1, 100};
              }),
              HasSubstr("the size -B+100 is negative"));
  EXPECT_EQ(error_of([](Parts& p) { p.tensors[0].shape[0] = {1, -1}; }), "no error");
  const std::int64_t large = std::int64_t{1} << 32;
  EXPECT_THAT(error_of([&](Parts& p) {
                p.tensors[0].shape = {n(large), n(large)};
              }),
              HasSubstr("tensors[0] (x).shape: the tensor is too large"));
  // A dimension of 0 hides no overflow.
  EXPECT_THAT(error_of([&](Parts& p) {
                p.tensors[0].shape = {n(0), n(large), n(large)};
              }),
              HasSubstr("too large"));
  // 2^36 · B floats are 2^58 bytes at the largest batch, and B floats more are too many.
  EXPECT_THAT(error_of([&](Parts& p) {
                p.tensors[0].shape = {{std::int64_t{1} << 36, 0}};
              }),
              HasSubstr("f.json: tensors: too large together"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[0].shape.assign(65, n(1)); }),
              HasSubstr("65 dimensions, expected at most 64"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[1].shape = {kB}; }),
              HasSubstr("tensors[1] (w).shape: the size of a parameter depends on the batch"));
}

TEST(BuildGraph, Order) {
  EXPECT_EQ(error_of([](Parts& p) { std::swap(p.ops[0].args, p.ops[1].args); }),
            "f.json: ops[0] (mul).args: reads tensors[2] (y) before ops[0] (mul) makes it, "
            "expected topological order");
  EXPECT_THAT(error_of([](Parts& p) { p.ops[1].outputs = {TensorId(2)}; }),
              HasSubstr("ops[1] (sum).outputs: tensors[2] (y) is already made by ops[0] (mul)"));
  EXPECT_THAT(error_of([](Parts& p) { p.ops[1].outputs = {TensorId(0)}; }),
              HasSubstr("tensors[0] (x): an input exists before the step, but ops[1] (sum)"));
  EXPECT_THAT(error_of([](Parts& p) { p.ops.pop_back(); }),
              HasSubstr("tensors[3] (w2): no op makes this output"));
  EXPECT_THAT(error_of([](Parts& p) { p.ops[0].outputs = {TensorId()}; }),
              HasSubstr("ops[0] (mul).outputs: expected at least one tensor"));
}

TEST(BuildGraph, IdsOutOfRange) {
  EXPECT_THAT(error_of([](Parts& p) { p.ops[0].args[0] = tensor_value(TensorId(5)); }),
              HasSubstr("ops[0] (mul).args: no tensor 5, there are 5"));
  EXPECT_THAT(error_of([](Parts& p) { p.ops[0].outputs = {TensorId(9)}; }),
              HasSubstr("ops[0] (mul).outputs: no tensor 9, there are 5"));
  EXPECT_THAT(error_of([](Parts& p) { p.ops[1].forward = OpId(7); }),
              HasSubstr("ops[1] (sum).forward: op 7 is no earlier forward op"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[3].replaces = TensorId(8); }),
              HasSubstr("tensors[3] (w2).replaces: tensor 8 is no parameter"));
  EXPECT_THAT(error_of([](Parts& p) { p.loss = TensorId(5); }),
              HasSubstr("f.json: loss: no tensor 5, there are 5"));
}

TEST(BuildGraph, Roles) {
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[2].of = TensorId(1); }),
              HasSubstr("tensors[2] (y).of: only gradients and optimizer state"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[2].role = TensorRole::kGradient; }),
              HasSubstr("tensors[2] (y).of: missing, expected the parameter"));
  EXPECT_THAT(error_of([](Parts& p) {
                p.tensors[2].role = TensorRole::kGradient;
                p.tensors[2].of = TensorId(0);
              }),
              HasSubstr("tensors[2] (y).of: tensor 0 is not a parameter"));
  EXPECT_THAT(error_of([](Parts& p) {
                for (int i : {2, 3}) {
                  p.tensors[i].role = TensorRole::kGradient;
                  p.tensors[i].of = TensorId(1);
                  p.tensors[i].replaces = TensorId();
                }
              }),
              HasSubstr("tensors[3] (w2).of: parameter 1 already has a gradient, tensor 2"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[3].role = TensorRole::kActivation; }),
              HasSubstr("only outputs replace a tensor"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[3].replaces = TensorId(0); }),
              HasSubstr("tensor 0 is no parameter, buffer or optimizer state"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[3].shape = {n(5)}; }),
              HasSubstr("tensors[1] (w) has another shape or dtype"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[3].dtype = DType::kFloat64; }),
              HasSubstr("another shape or dtype"));
  EXPECT_THAT(error_of([](Parts& p) {
                p.tensors[2] = p.tensors[3];
                p.tensors[2].name = "w3";
              }),
              HasSubstr("tensor 1 is already replaced by tensors[2] (w3)"));
  EXPECT_THAT(error_of([](Parts& p) { p.loss = TensorId(2); }),
              HasSubstr("loss: tensors[2] (y) is an activation, expected an output"));
  EXPECT_THAT(error_of([](Parts& p) { p.ops[1].phase = Phase::kUpdate; }),
              HasSubstr("ops[1] (sum).forward: only backward ops have one, not update ops"));
  EXPECT_THAT(error_of([](Parts& p) { p.ops[0].phase = Phase::kBackward; }),
              HasSubstr("op 0 is no earlier forward op"));
}

TEST(BuildGraph, PhasesFollowTheData) {
  EXPECT_THAT(
      error_of([](Parts& p) {
        p.ops[1].phase = Phase::kUpdate;
        p.ops[1].forward = {};
        p.ops[2].phase = Phase::kBackward;
      }),
      HasSubstr("ops[2] (sub).phase: a backward op reads tensors[4] (g), which the update op "
                "ops[1] (sum) makes"));
  EXPECT_EQ(error_of([](Parts& p) { p.ops[2].phase = Phase::kBackward; }),
            "f.json: ops[2] (sub).phase: a backward op makes tensors[3] (w2), the next value of a "
            "parameter: expected update");
  EXPECT_THAT(error_of([](Parts& p) {
                p.tensors[4].role = TensorRole::kGradient;
                p.tensors[4].of = TensorId(1);
                p.ops[1].phase = Phase::kUpdate;
                p.ops[1].forward = {};
              }),
              HasSubstr("ops[1] (sum).phase: an update op makes the gradient tensors[4] (g)"));
  EXPECT_THAT(error_of([](Parts& p) {
                p.tensors[4].role = TensorRole::kOutput;
                p.loss = TensorId(4);
              }),
              HasSubstr("ops[1] (sum).phase: a backward op makes the loss, expected forward"));
  EXPECT_THAT(error_of([](Parts& p) { p.tensors[1].role = TensorRole::kOptimizerState; }),
              HasSubstr("ops[0] (mul).phase: a forward op reads tensors[1] (w), which is optimizer "
                        "state: expected update"));
  // Running statistics are written where they are computed.
  EXPECT_EQ(error_of([](Parts& p) {
              p.tensors[1].role = TensorRole::kBuffer;
              p.ops[2].phase = Phase::kBackward;
            }),
            "no error");
}

TEST(BuildGraph, AnAliasNeedsABase) {
  EXPECT_THAT(error_of([](Parts& p) {
                p.ops[0].type = "aten.view.default";
                p.ops[0].args = {};
              }),
              HasSubstr("ops[0] (mul).args: aten.view.default needs a tensor"));
}

}  // namespace
}  // namespace heterog::graph
