// What a built graph says of itself.
#include "graph/model_graph.h"

#include <gtest/gtest.h>

#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::GraphMaker;
using support::kB;
using support::n;

OpId find_op(const ModelGraph& graph, std::string_view name) {
  for (OpId id : graph.op_ids()) {
    if (graph.op(id).name == name) return id;
  }
  throw std::runtime_error("no op " + std::string(name));
}

TEST(ModelGraph, TinyMlp) {
  const ModelGraph graph = support::tiny_mlp_graph();
  EXPECT_EQ(graph.parameters().size(), 4u);
  EXPECT_EQ(graph.parameter_elements(), 8 * 16 + 16 + 16 * 4 + 4);
  EXPECT_EQ(graph.tensor(graph.loss()).role, TensorRole::kOutput);
  const OpId hidden = find_op(graph, "addmm");
  EXPECT_EQ(graph.type_name(hidden), "aten.addmm.default");
  EXPECT_EQ(graph.scope(hidden), "first");
  EXPECT_EQ(graph.inputs(hidden).size(), 3u);
  const TensorId output = graph.outputs(hidden)[0];
  EXPECT_EQ(graph.tensor(output).producer, hidden);
  EXPECT_TRUE(graph.tensor(output).has_batch);
  EXPECT_EQ(graph.elements(output, 5), 5 * 16);
  EXPECT_EQ(graph.bytes(output, 5), 5 * 16 * 4);
  ASSERT_EQ(graph.consumers(output).size(), 1u);
  EXPECT_EQ(graph.op(graph.consumers(output)[0]).name, "relu");
}

TEST(ModelGraph, ConsumersAreEachListedOnce) {
  const ModelGraph graph = support::tiny_mlp_graph();
  const TensorId error = graph.outputs(find_op(graph, "sub"))[0];
  const auto consumers = graph.consumers(error);  // mul(error, error) and its backward
  ASSERT_EQ(consumers.size(), 2u);
  EXPECT_LT(consumers[0], consumers[1]);
}

TEST(ModelGraph, RootsFollowChainsOfAliases) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB, n(6)});
  const TensorId y = maker.op("aten.relu.default", {tensor_value(x)}, {kB, n(6)});
  const TensorId view = maker.op("aten.view.default", {tensor_value(y)}, {kB, n(2), n(3)});
  const TensorId moved = maker.op("aten.permute.default", {tensor_value(view)}, {n(2), kB, n(3)});
  const TensorId copy = maker.op("aten.clone.default", {tensor_value(moved)}, {n(2), kB, n(3)});
  const TensorId of_input = maker.op("aten.t.default", {tensor_value(x)}, {n(6), kB});
  const OpId view_op = maker.maker(view), clone_op = maker.maker(copy);
  const ModelGraph graph = std::move(maker).build();
  EXPECT_EQ(graph.root(moved), y);
  EXPECT_EQ(graph.root(copy), copy);
  EXPECT_EQ(graph.root(of_input), x);
  EXPECT_TRUE(graph.op(view_op).alias);
  EXPECT_FALSE(graph.op(clone_op).alias);
}

TEST(ModelGraph, EveryResultOfAMultipleViewHasTheSameRoot) {
  GraphBuilder builder("split");
  const TensorId x =
      builder.add_tensor({.name = "x", .role = TensorRole::kInput, .shape = {kB, n(4)}});
  const TensorId a = builder.add_tensor({.name = "a", .shape = {kB, n(2)}});
  const TensorId b = builder.add_tensor({.name = "b", .shape = {kB, n(2)}});
  builder.add_op({.name = "split",
                  .type = "aten.split.Tensor",
                  .args = {tensor_value(x), int_value(2), int_value(1)},
                  .outputs = {a, b}});
  const ModelGraph graph = std::move(builder).build("f");
  EXPECT_EQ(graph.root(a), x);
  EXPECT_EQ(graph.root(b), x);
}

TEST(ModelGraph, TensorsInListsAndKeywordsAreInputs) {
  GraphBuilder builder("cat");
  const TensorId x = builder.add_tensor({.name = "x", .role = TensorRole::kInput, .shape = {kB}});
  const TensorId w = builder.add_tensor({.name = "w", .role = TensorRole::kInput, .shape = {kB}});
  const TensorId y = builder.add_tensor({.name = "y", .shape = {{2, 0}}});
  const OpId op = builder.add_op({.name = "cat",
                                  .type = "aten.cat.default",
                                  .args = {list_value({tensor_value(x), tensor_value(x)})},
                                  .outputs = {y},
                                  .kwargs = {{"weight", tensor_value(w)}}});
  const ModelGraph graph = std::move(builder).build("f");
  ASSERT_EQ(graph.inputs(op).size(), 3u);
  EXPECT_EQ(graph.inputs(op)[1], x);
  EXPECT_EQ(graph.inputs(op)[2], w);
}

TEST(ModelGraph, HashDependsOnSizesArgumentsAndNames) {
  const auto make = [](const std::string& name, std::int64_t size, std::int64_t argument) {
    GraphMaker maker(name);
    const TensorId x = maker.input("x", {kB, n(size)});
    maker.op("aten.sum.dim_IntList", {tensor_value(x), list_value({int_value(argument)})}, {kB});
    return std::move(maker).build().hash();
  };
  EXPECT_EQ(make("a", 4, 1), make("a", 4, 1));
  EXPECT_NE(make("a", 4, 1), make("b", 4, 1));
  EXPECT_NE(make("a", 4, 1), make("a", 5, 1));
  EXPECT_NE(make("a", 4, 1), make("a", 4, -1));
}

}  // namespace
}  // namespace heterog::graph
