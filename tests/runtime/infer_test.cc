// What a graph declares is held against what its operators make: whole graphs pass, each claim that
// is changed is refused in one line, and what LibTorch infers without memory is what its kernels
// give.
#include "runtime/kernels/infer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "graph/graph_io.h"
#include "operators/allowed.h"
#include "runtime/kernels/execute.h"
#include "runtime/kernels/operators.h"
#include "runtime/kernels/result_rules.h"

namespace heterog::runtime {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<std::string> graph_files() {
  std::vector<std::string> files;
  for (const char* folder : {"models", "tests/data"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().string().ends_with(".json.gz")) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Nothing of an exported step is left to the call: a kernel without memory, or a row, knows it.
TEST(Infer, AllOpsOfExportedGraphs) {
  std::size_t files = 0;
  std::set<std::string> seen;
  for (const std::string& file : graph_files()) {
    const graph::GraphFile read = graph::read_graph_file(file);
    const auto batches = checked_batches(64, read.known.smallest());
    InferredOps count;
    ASSERT_NO_THROW(count = check_results(read.graph, batches, file)) << file;
    EXPECT_THAT(count.left, IsEmpty()) << file;
    EXPECT_EQ(count.inferred, 2 * read.graph.op_count()) << file;
    EXPECT_LE(count.asked, count.inferred) << file;
    for (OpId op : read.graph.op_ids()) seen.emplace(read.graph.type_name(op));
    ++files;
  }
  EXPECT_GE(files, 59u);
  EXPECT_GT(seen.size(), 100u);
}

TEST(Infer, RulesAreForOperatorsOfTheTable) {
  for (const std::string_view type : ruled_operators()) {
    EXPECT_TRUE(operators::is_allowed(type)) << type;
  }
}

TEST(Infer, ChecksTwoBatches) {
  EXPECT_EQ(checked_batches(8, 2), (std::vector<std::int64_t>{8, 2}));
  EXPECT_EQ(checked_batches(8, 8), (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(checked_batches(1, 1), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(checked_batches(1, 4), (std::vector<std::int64_t>{4, 5}));  // at which it says to hold
}

// x [B, 3] and w [5, 3] → the op → y, as the file says that it is.
struct OneOp {
  std::string type = "aten.mm.default";
  std::string args = R"(["%0", "%2"])";
  std::string shape = R"(["B", 5])";
  std::string dtype = "float32";
  std::string outputs = "[3]";
};

std::string error_of(const OneOp& one, std::vector<std::int64_t> batches = {8, 2}) {
  const std::string text =
      R"({"format": "heterog-graph", "version": 1, "name": "one", "dtype": "float32", "loss": 3,
    "tensors": [{"name": "x", "role": "input", "dtype": "float32", "shape": ["B", 3]},
                {"name": "w", "role": "input", "dtype": "float32", "shape": [5, 3]},
                {"name": "v", "role": "input", "dtype": "float32", "shape": [3, 5]},
                {"name": "y", "role": "output", "dtype": ")" +
      one.dtype + R"(", "shape": )" + one.shape + R"(},
                {"name": "z", "role": "output", "dtype": "float32", "shape": ["B", 1]}],
    "ops": [{"name": "a", "phase": "forward", "op": ")" +
      one.type + R"(", "args": )" + one.args + R"(, "outputs": )" + one.outputs +
      R"(}, {"name": "b", "phase": "forward", "op": "aten.slice.Tensor", "args": ["%0", 1, 0, 1],
             "outputs": [4]}]})";
  try {
    const graph::ModelGraph graph = graph::parse_graph(text, "f.json");
    check_operators(graph, "f.json");
    check_results(graph, batches, "f.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Infer, WhatHoldsIsTaken) { EXPECT_EQ(error_of({}), "no error"); }

TEST(Infer, ClaimsThatDoNotHold) {
  EXPECT_EQ(error_of({.shape = R"(["B", 6])"}),
            "f.json: op 'a' (aten.mm.default): result 'y': float32[B, 6] is declared, the operator "
            "gives float32[8, 5] at batch 8");
  EXPECT_THAT(error_of({.shape = "[\"B\"]"}), HasSubstr("float32[B] is declared"));
  EXPECT_THAT(error_of({.dtype = "float16"}), HasSubstr("float16[B, 5] is declared"));
  // Right at the batch that is planned, and at no other.
  EXPECT_EQ(error_of({.shape = "[8, 5]"}),
            "f.json: op 'a' (aten.mm.default): result 'y': float32[8, 5] is declared, the operator "
            "gives float32[2, 5] at batch 2");
  EXPECT_THAT(error_of({.shape = R"(["2B", 5])"}, {0, 2}), HasSubstr("at batch 2"));
}

TEST(Infer, OperandsThatDoNotGoTogether) {
  EXPECT_THAT(error_of({.args = R"(["%0", "%1"])"}),
              StartsWith("f.json: op 'a' (aten.mm.default): does not take float32[8, 3], "
                         "float32[5, 3] at batch 8: "));
  EXPECT_THAT(error_of({.type = "aten.view.default", .args = R"(["%0", [3, 7]])"}),
              HasSubstr("is invalid for input of size 24"));
}

// Rules of our own, where LibTorch has none.
TEST(Infer, Rules) {
  const OneOp relu{.type = "aten.relu.default", .args = R"(["%0"])", .shape = R"(["B", 3])"};
  EXPECT_EQ(error_of(relu), "no error");
  OneOp wrong = relu;
  wrong.shape = R"(["B", 4])";
  EXPECT_THAT(error_of(wrong), HasSubstr("the operator gives float32[8, 3]"));
  EXPECT_THAT(error_of({.type = "aten.where.self", .args = R"(["%0", "%0", "%0"])"}),
              HasSubstr("'condition' is not of bools"));
  EXPECT_THAT(error_of({.type = "aten.embedding.default", .args = R"(["%0", "%1"])"}),
              HasSubstr("the operator gives float32[5, 3, 3]"));
}

// A piece that is not named would be left out of the training, and a size may say 2^40 of them.
TEST(Infer, PiecesOfTheBatch) {
  const OneOp split{.type = "aten.split.Tensor",
                    .args = R"(["%0", 8])",
                    .shape = R"(["B", 3])",
                    .outputs = "[3]"};
  EXPECT_EQ(error_of(split), "no error");
  EXPECT_THAT(error_of(split, {8, 20}),
              HasSubstr("it gives 3 tensors, and 1 outputs are declared"));
  const std::string type = "aten.unbind.int";
  EXPECT_THAT(error_of({.type = type, .args = R"(["%0"])"}, {1 << 20, 2}),
              HasSubstr("it gives 1048576 tensors"));
}

// What no rule knows is held against the file when it has run.
TEST(Infer, WhatOnlyTheCallTells) {
  const std::string text =
      R"({"format": "heterog-graph", "version": 1, "name": "one", "dtype": "float32", "loss": 1,
    "tensors": [{"name": "x", "role": "input", "dtype": "float32", "shape": ["B", 3]},
                {"name": "y", "role": "output", "dtype": "int64", "shape": ["B", 2]}],
    "ops": [{"name": "a", "phase": "forward", "op": "aten.nonzero.default", "args": ["%0"],
             "outputs": [1]}]})";
  const graph::ModelGraph graph = graph::parse_graph(text, "f.json");
  EXPECT_EQ(check_results(graph, std::vector<std::int64_t>{4, 2}, "f.json").left,
            (std::vector<std::string>{"aten.nonzero.default", "aten.nonzero.default"}));
  const at::Tensor zeros = at::zeros({4, 3}), ones = at::ones({4, 3});
  at::Tensor four = zeros.clone();
  four.select(1, 0).fill_(1);
  EXPECT_NO_THROW(execute(graph, OpId(0), std::span(&four, 1), {4, 4}, {}));
  try {
    execute(graph, OpId(0), std::span(&ones, 1), {4, 4}, {});
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_STREQ(error.what(),
                 "op 'a' (aten::nonzero): result 'y': int64[4, 2] is declared, the operator gives "
                 "int64[12, 2]");
  }
}

}  // namespace
}  // namespace heterog::runtime
