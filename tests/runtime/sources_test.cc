// Random data keep to what a graph says of its inputs and buffers, and to what reads them.
#include "runtime/exec/sources.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "graph/graph_io.h"
#include "tensors/seeded_generator.h"

namespace heterog::runtime {
namespace {

constexpr std::int64_t kSamples = 2000;

// A graph whose first tensor is `first`, with these further tensors and operators.
graph::ModelGraph graph_of(const std::string& first, const std::string& tensors = "",
                           const std::string& ops = "") {
  return graph::parse_graph(
      fmt::format(R"({{"format": "heterog-graph", "version": 1, "name": "case",
        "producer": {{}}, "traced_batches": [2, 3, 64], "dtype": "float32",
        "optimizer": {{}}, "loss": 2, "tensors": [{},
        {{"name": "w", "role": "parameter", "dtype": "float32", "shape": [5, 4]}},
        {{"name": "loss", "role": "output", "dtype": "float32", "shape": []}}{}],
        "ops": [{{"name": "mean", "op": "aten.mean.default", "phase": "forward",
                  "args": ["%1"], "outputs": [2]}}{}]}})",
                  first, tensors, ops),
      "case.json");
}

std::string tensor(const std::string& name, const std::string& role, const std::string& dtype,
                   const std::string& shape, const std::string& values = "{}") {
  return fmt::format(R"({{"name": "{}", "role": "{}", "dtype": "{}", "shape": {}, "values": {}}})",
                     name, role, dtype, shape, values);
}

at::Tensor drawn(const graph::ModelGraph& graph) {
  const tensors::SeededGenerator seeded(1);
  return random_source(graph, TensorId(0), kSamples, Floats::kOwn);
}

double least(const at::Tensor& values) { return values.min().item<double>(); }
double most(const at::Tensor& values) { return values.max().item<double>(); }

TEST(Sources, WholeNumbersTakeAllOfTheRangeOfTheFileAndNothingElse) {
  for (const char* dtype : {"int64", "int32", "uint8"}) {
    const at::Tensor values =
        drawn(graph_of(tensor("x", "input", dtype, R"(["B"])", R"({"range": [3, 7]})")));
    EXPECT_EQ(least(values), 3);
    EXPECT_EQ(most(values), 7);
  }
  const at::Tensor rows =
      drawn(graph_of(tensor("x", "input", "int64", R"(["B", 2])", R"({"range": [0, 1]})")));
  EXPECT_TRUE((rows.select(1, 0) == 1).all().item<bool>());  // no sequence is all padding
  EXPECT_EQ(least(rows), 0);
}

TEST(Sources, FloatsTakeTheRangeOfTheFile) {
  const at::Tensor values =
      drawn(graph_of(tensor("x", "input", "float32", R"(["B"])", R"({"range": [2.0, 6.0]})")));
  EXPECT_GE(least(values), 2);
  EXPECT_LE(most(values), 6);
  EXPECT_GT(most(values) - least(values), 3.9);
  EXPECT_LT(least(drawn(graph_of(tensor("x", "input", "float32", R"(["B"])")))), 0);
}

TEST(Sources, BuffersStayNearWhatTheFileHasInThem) {
  const at::Tensor list =
      drawn(graph_of(tensor("x", "buffer", "float32", "[99]", R"({"list": [0.5, 1.0, 2.0]})")));
  EXPECT_GE(least(list), 0.5);
  EXPECT_LE(most(list), 2);
  const at::Tensor fill =
      drawn(graph_of(tensor("x", "buffer", "float32", "[99]", R"({"fill": -4.0})")));
  EXPECT_GE(least(fill), -6);
  EXPECT_LE(most(fill), -2);
  EXPECT_LT(least(drawn(graph_of(tensor("x", "buffer", "float32", "[99]", R"({"fill": 0})")))), 0);
}

TEST(Sources, EveryRowOfAMaskHasBothOfItsValues) {
  const at::Tensor mask = drawn(graph_of(tensor("x", "input", "bool", R"(["B", 3])")));
  EXPECT_TRUE(mask.any(1).all().item<bool>());
  EXPECT_FALSE(mask.all(1).any().item<bool>());
}

// A loss that leaves out -100, and one more reader of its labels: the classes that come out of
// `select` are gathered by.
at::Tensor labels(const std::string& condition) {
  const std::string tensors = "," + tensor("scores", "input", "float32", R"(["B", 5])") + "," +
                              tensor("each", "activation", "float32", R"(["B"])") + "," +
                              tensor("count", "activation", "float32", "[]") + "," +
                              tensor("mask", "input", "bool", R"(["B"])") + "," +
                              tensor("is_kept", "activation", "bool", R"(["B"])") + "," +
                              tensor("zeros", "input", "int64", R"(["B"])") + "," +
                              tensor("classes", "activation", "int64", R"(["B"])") + "," +
                              tensor("column", "activation", "int64", R"(["B", 1])") + "," +
                              tensor("own", "activation", "float32", R"(["B", 1])") + "," +
                              tensor("slope", "activation", "float32", R"(["B", 5])");
  const std::string ops = fmt::format(
      R"(,{{"name": "nll", "op": "aten.nll_loss_forward.default", "phase": "forward",
         "args": ["%3", "%0", null, 0, -100], "outputs": [4, 5]}},
        {{"name": "ne", "op": "aten.ne.Scalar", "phase": "forward",
         "args": ["%0", -100], "outputs": [7]}},
        {{"name": "where", "op": "aten.where.self", "phase": "forward",
         "args": ["{}", "%0", "%8"], "outputs": [9]}},
        {{"name": "unsqueeze", "op": "aten.unsqueeze.default", "phase": "forward",
         "args": ["%9", 1], "outputs": [10]}},
        {{"name": "gather", "op": "aten.gather.default", "phase": "forward",
         "args": ["%3", 1, "%10"], "outputs": [11]}},
        {{"name": "backward", "op": "aten.nll_loss_backward.default", "phase": "backward",
         "args": ["%4", "%3", "%0", null, 0, -100, "%5"], "outputs": [12]}})",
      condition);
  return drawn(
      graph_of(tensor("y", "input", "int64", R"(["B"])", R"({"range": [0, 4], "also": [-100]})"),
               tensors, ops));
}

TEST(Sources, TheLabelThatALossLeavesOutIsNoIndex) {
  EXPECT_EQ(least(labels("%7")), -100);  // where it is left out before the gather
  EXPECT_EQ(least(labels("%6")), 0);     // a mask does not know of it
  EXPECT_EQ(most(labels("%6")), 4);
}

}  // namespace
}  // namespace heterog::runtime
