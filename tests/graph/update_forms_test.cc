// Chains that do the same, and which of their calls serve all of them.
#include "graph/update_forms.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/split.h"
#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::GraphMaker;
using support::kB;
using support::n;

struct Settings {
  double momentum = 0.9;
  std::int64_t width = 6;
};

// Parameters whose step has something of every kind: a rate of the number of the step, moments, a
// clamp, which has no form over lists, and a sum.
ModelGraph graph_of(const std::vector<Settings>& parameters) {
  GraphMaker make("steps");
  const TensorId step = make.input("optimizer/step", {}, DType::kFloat64);
  for (const Settings& one : parameters) {
    const std::vector<Affine> shape = {n(one.width)};
    const std::string number_of = std::to_string(&one - parameters.data());
    const TensorId x = make.input("x" + number_of, {kB, n(one.width)});
    const TensorId w = make.parameter("w" + number_of, shape);
    const TensorId m = make.state("m" + number_of, shape, w);
    const TensorId y =
        make.op("aten.mul.Tensor", {tensor_value(x), tensor_value(w)}, {kB, n(one.width)});
    const Value no{.kind = Value::Kind::kBool, .integer = {0, 0}};
    const TensorId gradient =
        make.op("aten.sum.dim_IntList", {tensor_value(y), list_value({int_value(0)}), no}, shape,
                {.phase = Phase::kBackward,
                 .forward = make.maker(y),
                 .role = TensorRole::kGradient,
                 .of = w});
    const auto update = [&](const char* type, std::vector<Value> args, std::vector<Affine> made,
                            DType dtype = DType::kFloat32, TensorId replaces = {}) {
      return make.op(type, std::move(args), std::move(made),
                     {.phase = Phase::kUpdate,
                      .role = replaces.valid() ? TensorRole::kOutput : TensorRole::kActivation,
                      .dtype = dtype,
                      .replaces = replaces});
    };
    const TensorId number =
        update("aten.view.default", {tensor_value(step), list_value({})}, {}, DType::kFloat64);
    const TensorId rate =
        update("aten.mul.Tensor", {tensor_value(number), float_value(0.01)}, {}, DType::kFloat64);
    const TensorId next_m = update("aten.mul.Tensor", {tensor_value(m), float_value(one.momentum)},
                                   shape, DType::kFloat32, m);
    const TensorId moved =
        update("aten.add.Tensor", {tensor_value(gradient), tensor_value(next_m)}, shape);
    const TensorId held =
        update("aten.clamp.default", {tensor_value(moved), float_value(0)}, shape);
    update("aten.addcmul.default", {tensor_value(w), tensor_value(held), tensor_value(rate)}, shape,
           DType::kFloat32, w);
  }
  return std::move(make).build();
}

FoldedGraph fold(const ModelGraph& graph) { return fold_aliases(graph, analyze_splits(graph)); }

TEST(UpdateForms, SayWhichCallsServeAll) {
  using enum SharedCall;
  const ModelGraph graph = graph_of({{}, {.width = 3}, {.momentum = 0.8}});
  const FoldedGraph folded = fold(graph);
  ASSERT_EQ(folded.chains.size(), 3u);
  for (const UpdateChain& chain : folded.chains) {
    EXPECT_EQ(chain.calls, (std::vector{kOnce, kLists, kLists, kApart, kLists}));
    EXPECT_TRUE(chain.shares_calls());
  }
  // Of other sizes, but not with another number.
  EXPECT_EQ(folded.chains[0].form, folded.chains[1].form);
  EXPECT_NE(folded.chains[0].form, folded.chains[2].form);
}

}  // namespace
}  // namespace heterog::graph
