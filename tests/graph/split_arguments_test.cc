// Arguments that depend on the batch, and row numbers: what a slice may take for its own, and what
// means rows of the whole and keeps the op whole.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/split.h"
#include "graph/split_rules.h"
#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::GraphMaker;
using support::kB;
using support::n;

Value scalar_value(double number, double offset) {
  Value value;
  value.kind = Value::Kind::kScalar;
  value.number = number;
  value.offset = offset;
  return value;
}

// An operator on one operand, or on none.
struct Example {
  std::string type;
  std::vector<Affine> operand;  // of an input, where `args` begin with it
  std::vector<Value> args;      // after the operand
  std::vector<Affine> out;
  bool reads = true;
};

bool is_sliceable(const Example& example) {
  GraphMaker maker;
  std::vector<Value> args;
  const TensorId x = maker.input("x", example.operand);
  if (example.reads) args.push_back(tensor_value(x));
  args.insert(args.end(), example.args.begin(), example.args.end());
  maker.op(example.type, args, example.out, {.dtype = DType::kInt64});
  return analyze_splits(std::move(maker).build()).sliceable[OpId(0)] != 0;
}

std::string text_of(const Example& example) {
  std::string text = example.type + " of";
  for (const Affine& size : example.operand) text += " " + affine_text(size);
  return text;
}

const Value kLast = size_value(1, -1), kRows = size_value(1, 0), kTwiceRows = size_value(2, 0);

// Where nothing is sliced along the argument, the slice's count is another number than the whole's.
TEST(SplitArguments, ThatNameRowsOfTheWholeKeepTheOpWhole) {
  const std::vector<Example> examples = {
      {"aten.select.int", {n(99), n(4)}, {int_value(0), kLast}, {n(4)}},
      {"aten.select.int", {kB, n(99)}, {int_value(1), kLast}, {kB}},
      {"aten.slice.Tensor", {n(99)}, {int_value(0), kRows, size_value(1, 3)}, {n(3)}},
      {"aten.slice.Tensor", {kB, n(99)}, {int_value(1), kRows, size_value(1, 3)}, {kB, n(3)}},
      {"aten.roll.default", {n(5)}, {list_value({kRows}), list_value({int_value(0)})}, {n(5)}},
      {"aten.roll.default",
       {kB, n(5)},
       {list_value({kRows}), list_value({int_value(1)})},
       {kB, n(5)}},
      {"aten.tril.default", {n(5), n(5)}, {size_value(1, -6)}, {n(5), n(5)}},
      {"aten.triu.default", {kB, n(5), n(5)}, {size_value(1, -6)}, {kB, n(5), n(5)}},
      {"aten.topk.default", {kB, n(9)}, {kRows, int_value(1)}, {kB, n(2)}},
      {"aten.constant_pad_nd.default", {n(3)}, {list_value({kRows, size_value(-1, 0)})}, {n(3)}},
      {"aten.select_backward.default",
       {n(4)},
       {list_value({int_value(9), int_value(4)}), int_value(0), kLast},
       {n(9), n(4)}},
      {"aten.arange.start", {}, {kRows, size_value(1, 4)}, {n(4)}, false},
      {"aten.full_like.default", {n(3)}, {kRows}, {n(3)}},
      // A dimension that is no number of its own says nothing about what is reduced.
      {"aten.sum.dim_IntList", {kB, n(3)}, {list_value({kLast})}, {kB}},
      {"aten.sum.dim_IntList", {kB, n(3)}, {scalar_value(1, -4)}, {kB}},
      {"aten.select.int", {kB, n(3)}, {scalar_value(1, -4), int_value(0)}, {kB}},
  };
  for (const Example& example : examples) {
    EXPECT_FALSE(is_sliceable(example)) << text_of(example);
  }
}

TEST(SplitArguments, ThatAreTheSizesOfTheSliceAreFollowed) {
  const Value all = int_value(INT64_MAX), left_over = int_value(-1);
  const auto three = int_value(3);
  const std::vector<Example> examples = {
      {"aten.view.default", {kB, n(2), n(3)}, {list_value({kRows, int_value(6)})}, {kB, n(6)}},
      {"aten.view.default", {kB, n(2), n(3)}, {list_value({left_over, three})}, {{2, 0}, n(3)}},
      {"aten.expand.default", {n(1), n(3)}, {list_value({kRows, left_over})}, {kB, n(3)}},
      {"aten.repeat.default", {n(2), n(3)}, {list_value({kRows, int_value(1)})}, {{2, 0}, n(3)}},
      {"aten.zeros.default", {}, {list_value({three, kTwiceRows})}, {n(3), {2, 0}}, false},
      {"aten.slice.Tensor", {kB, n(3)}, {int_value(0), int_value(0), kRows}, {kB, n(3)}},
      {"aten.slice.Tensor", {kB, n(3)}, {int_value(0), int_value(0), all}, {kB, n(3)}},
      {"aten.arange.start", {}, {int_value(0), kRows}, {kB}, false},
      {"aten.arange.start_step", {}, {int_value(0), kTwiceRows, int_value(1)}, {{2, 0}}, false},
      {"aten.remainder.Scalar", {kB}, {scalar_value(1, 0)}, {kB}},
  };
  for (const Example& example : examples) {
    EXPECT_TRUE(is_sliceable(example)) << text_of(example);
  }
}

// The batch elsewhere than where the result is cut, or a number of the whole in its place.
TEST(SplitArguments, SizesThatAreNotThoseOfTheSliceKeepTheOpWhole) {
  const std::vector<Example> examples = {
      {"aten.view.default", {kB, n(6)}, {list_value({int_value(6), kRows})}, {kB, n(6)}},
      {"aten.view.default",
       {kB, n(6)},
       {list_value({scalar_value(1, 0), int_value(6)})},
       {kB, n(6)}},
      {"aten.zeros.default", {}, {list_value({int_value(12)})}, {kB}, false},
      {"aten.zeros.default", {}, {list_value({kTwiceRows})}, {kB}, false},
      {"aten.repeat.default",
       {n(2), n(3)},
       {list_value({kTwiceRows, int_value(1)})},
       {{2, 0}, n(3)}},
      {"aten.split.Tensor", {{4, 0}}, {int_value(12), int_value(0)}, {{4, 0}}},
  };
  for (const Example& example : examples) {
    EXPECT_FALSE(is_sliceable(example)) << text_of(example);
  }
}

TEST(SplitArguments, OnlyAllRowsInOrderAreRowNumbers) {
  const std::vector<Example> examples = {
      // Backwards, from the second, every other one, as many again, of a number of the whole.
      {"aten.arange.start_step", {}, {kLast, int_value(-1), int_value(-1)}, {kB}, false},
      {"aten.arange.start", {}, {int_value(1), size_value(1, 1)}, {kB}, false},
      {"aten.arange.start", {}, {int_value(-1), kLast}, {kB}, false},
      {"aten.arange.start_step", {}, {int_value(0), kTwiceRows, int_value(2)}, {kB}, false},
      {"aten.arange.start", {}, {kRows, kTwiceRows}, {kB}, false},
      {"aten.arange.default", {}, {scalar_value(1, 0)}, {kB}, false},
  };
  for (const Example& example : examples) {
    EXPECT_FALSE(is_sliceable(example)) << text_of(example);
  }
}

// What `type` makes of the row numbers of a batch, [B, 1].
SplitKind of_rows(const std::string& type, std::vector<Value> args, std::vector<Affine> out,
                  DType dtype = DType::kInt64) {
  GraphMaker maker;
  const TensorId rows = maker.op("aten.arange.default", {kRows}, {kB}, {.dtype = DType::kInt64});
  const TensorId column = maker.op("aten.unsqueeze.default", {tensor_value(rows), int_value(1)},
                                   {kB, n(1)}, {.dtype = DType::kInt64});
  args.insert(args.begin(), tensor_value(column));
  const TensorId result = maker.op(type, args, std::move(out), {.dtype = dtype});
  return analyze_splits(std::move(maker).build()).rules[result].kind;
}

TEST(SplitArguments, RowNumbersAreNoLongerThatOnceTheyAreComputedWith) {
  EXPECT_EQ(of_rows("aten.expand.default", {list_value({kRows, int_value(3)})}, {kB, n(3)}),
            SplitKind::kLocal);
  EXPECT_EQ(of_rows("aten.view.default", {list_value({int_value(1), kRows})}, {n(1), kB}),
            SplitKind::kLocal);
  EXPECT_EQ(of_rows("aten._to_copy.default", {}, {kB, n(1)}, DType::kInt32), SplitKind::kLocal);
  EXPECT_EQ(of_rows("aten._to_copy.default", {}, {kB, n(1)}, DType::kInt8), SplitKind::kConcat);
  EXPECT_EQ(of_rows("aten.tril.default", {}, {kB, n(1)}), SplitKind::kWhole);
  EXPECT_EQ(of_rows("aten.flip.default", {list_value({int_value(0)})}, {kB, n(1)}),
            SplitKind::kWhole);
  // The numbers of the whole, then: what is computed from them is cut like any other rows.
  for (const char* type : {"aten.add.Scalar", "aten.mul.Scalar", "aten.remainder.Scalar"}) {
    EXPECT_EQ(of_rows(type, {int_value(2)}, {kB, n(1)}), SplitKind::kConcat) << type;
  }
}

// Two rows a sample: the first of each pair are the rows 0, 2, 4, …, not 0, 1, 2, …
TEST(SplitArguments, RowNumbersThatAreReshapedIntoPairsAreWhole) {
  GraphMaker maker;
  const Affine twice{2, 0};
  const TensorId rows =
      maker.op("aten.arange.default", {kTwiceRows}, {twice}, {.dtype = DType::kInt64});
  const TensorId pairs =
      maker.op("aten.view.default", {tensor_value(rows), list_value({kRows, int_value(2)})},
               {kB, n(2)}, {.dtype = DType::kInt64});
  const SplitAnalysis splits = analyze_splits(std::move(maker).build());
  EXPECT_EQ(splits.rules[rows].kind, SplitKind::kWhole);
  EXPECT_EQ(splits.rules[pairs], concat_rule(0));
}

// gather and scatter walk no more rows than the index has: a part of a longer operand's, the first
// ones of the whole, which are not the first ones of each slice.
TEST(SplitArguments, OperandsWithOtherCountsOfRowsKeepTheOpWhole) {
  const auto sliceable = [](const std::string& type, std::vector<std::vector<Affine>> shapes) {
    GraphMaker maker;
    std::vector<TensorId> in;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      in.push_back(maker.input("in" + std::to_string(i), shapes[i],
                               i == 1 ? DType::kInt64 : DType::kFloat32));
    }
    std::vector<Value> args = {tensor_value(in[0]), int_value(1), tensor_value(in[1])};
    if (in.size() > 2) args.push_back(tensor_value(in[2]));
    maker.op(type, args, in.size() > 2 ? shapes[0] : shapes[1]);
    return analyze_splits(std::move(maker).build()).sliceable[OpId(0)] != 0;
  };
  const std::vector<Affine> one = {kB, n(4)}, two = {{2, 0}, n(4)};
  EXPECT_TRUE(sliceable("aten.gather.default", {one, one}));
  EXPECT_TRUE(sliceable("aten.gather.default", {two, two}));
  EXPECT_FALSE(sliceable("aten.gather.default", {two, one}));
  for (const char* type : {"aten.scatter.src", "aten.scatter_add.default"}) {
    EXPECT_TRUE(sliceable(type, {one, one, one})) << type;
    EXPECT_FALSE(sliceable(type, {two, one, one})) << type;
    EXPECT_FALSE(sliceable(type, {one, one, two})) << type;
    EXPECT_FALSE(sliceable(type, {two, one, two})) << type;
  }
}

// A sum that is cut off to whole numbers on each slice is not the whole's.
TEST(SplitArguments, PartialSumsThatAreRoundedAreWhole) {
  for (const DType dtype : {DType::kFloat32, DType::kInt64}) {
    GraphMaker maker;
    const TensorId x = maker.input("x", {kB, n(3)});
    const TensorId sum =
        maker.op("aten.sum.dim_IntList", {tensor_value(x), list_value({int_value(0)})}, {n(3)});
    const TensorId total = maker.op("aten.sum.default", {tensor_value(sum)}, {}, {.dtype = dtype});
    EXPECT_EQ(analyze_splits(std::move(maker).build()).rules[total].kind,
              dtype == DType::kFloat32 ? SplitKind::kSum : SplitKind::kWhole);
  }
}

// A limit that is the batch, an order of its rows, and choices among its samples.
TEST(SplitArguments, OfRandomNumbersKeepTheOpWholeWhereTheyMeanTheBatch) {
  const Value two = int_value(2);
  const auto list = [](Value first) { return list_value({std::move(first), int_value(3)}); };
  const std::vector<std::pair<Example, bool>> examples = {
      {{"aten.randint.default", {}, {int_value(9), list(kRows)}, {kB, n(3)}, false}, true},
      {{"aten.randint.default", {}, {kRows, list(kRows)}, {kB, n(3)}, false}, false},
      {{"aten.randint.low", {}, {int_value(0), kRows, list(kRows)}, {kB, n(3)}, false}, false},
      {{"aten.randn.default", {}, {list(kTwiceRows)}, {kB, n(3)}, false}, false},
      {{"aten.randperm.default", {}, {kRows}, {kB}, false}, false},
      {{"aten.randperm.default", {}, {int_value(9)}, {n(9)}, false}, true},
      {{"aten.multinomial.default", {kB, n(4)}, {two}, {kB, n(2)}}, true},
      {{"aten.multinomial.default", {n(4), kB}, {two}, {n(4), n(2)}}, false},
      {{"aten.multinomial.default", {kB}, {two}, {n(2)}}, false},
      {{"aten.multinomial.default", {n(4)}, {kRows}, {kB}}, false}};
  for (const auto& [example, sliceable] : examples) {
    EXPECT_EQ(is_sliceable(example), sliceable) << text_of(example);
  }
}

// A dimension that a table does not have is for the operator to refuse.
TEST(SplitArguments, ThatNameNoDimensionKeepTheOpWhole) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {n(5), n(4)});
  const TensorId rows = maker.input("rows", {kB}, DType::kInt64);
  maker.op("aten.index_select.default", {tensor_value(x), int_value(300), tensor_value(rows)},
           {kB, n(4)});
  EXPECT_FALSE(analyze_splits(std::move(maker).build()).sliceable[OpId(0)]);
}

}  // namespace
}  // namespace heterog::graph
