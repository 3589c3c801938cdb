// How ops act on slices of the batch: the walk, the places of the batch, what is left whole.
#include "graph/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"
#include "graph/split_rules.h"
#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::GraphMaker;
using support::kB;
using support::n;

constexpr Affine times_b(std::int64_t a) { return {a, 0}; }

Value ints(std::initializer_list<std::int64_t> values) {
  std::vector<Value> items;
  for (std::int64_t value : values) items.push_back(int_value(value));
  return list_value(items);
}

// The rule of `tensor` in the graph that the maker has made.
SplitRule rule_of(GraphMaker maker, TensorId tensor) {
  return analyze_splits(std::move(maker).build()).rules[tensor];
}

TEST(Split, TrainingStepSumsGradientsAndReducesThemForTheUpdate) {
  const ModelGraph graph = support::tiny_mlp_graph();
  const SplitAnalysis splits = analyze_splits(graph);
  int gradients = 0, reduced = 0;
  for (OpId op : graph.op_ids()) {
    EXPECT_TRUE(splits.sliceable[op]) << graph.op(op).name << ": " << splits.reason[op];
    EXPECT_EQ(splits.uses[op].size(), graph.inputs(op).size());
    if (graph.op(op).phase != Phase::kUpdate) continue;
    for (OperandUse use : splits.uses[op]) reduced += use == OperandUse::kReduced ? 1 : 0;
    for (TensorId output : graph.outputs(op)) EXPECT_EQ(splits.rules[output], kSameRule);
  }
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role != TensorRole::kGradient) continue;
    EXPECT_EQ(splits.rules[id], kSumRule) << graph.tensor(id).name;
    ++gradients;
  }
  EXPECT_EQ(gradients, 4);
  EXPECT_GE(reduced, 4);
  // A sum over the slice, divided by the whole batch's number of elements.
  EXPECT_EQ(splits.rules[graph.loss()], kSumRule);
}

TEST(Split, InputsAreCutWhereTheirSizeIsAMultipleOfTheBatch) {
  GraphMaker maker;
  const TensorId rows = maker.input("rows", {n(3), times_b(4)});
  const TensorId odd = maker.input("odd", {{4, 1}});
  const TensorId square = maker.input("square", {kB, kB});
  const TensorId table = maker.parameter("table", {n(5)});
  maker.op("aten.relu.default", {tensor_value(odd)}, {{4, 1}});
  const SplitAnalysis splits = analyze_splits(std::move(maker).build());
  EXPECT_EQ(splits.rules[rows], concat_rule(1));
  EXPECT_EQ(splits.rules[odd].kind, SplitKind::kWhole);
  EXPECT_EQ(splits.rules[square].kind, SplitKind::kWhole);
  EXPECT_EQ(splits.rules[table], kSameRule);
  EXPECT_FALSE(splits.sliceable[OpId(0)]);
}

// The batch's place after reshaping: [before][B][after] in row-major order.
TEST(Split, ReshapeFollowsTheBatch) {
  struct Example {
    std::vector<Affine> from, to;
    SplitRule rule;  // kWhole: cannot be cut
  };
  const std::vector<Example> examples = {
      {{kB, n(4), n(3)}, {times_b(4), n(3)}, concat_rule(0, 1)},
      // Sequence first: 4 runs of B rows.
      {{n(4), kB, n(3)}, {times_b(4), n(3)}, concat_rule(0, 4)},
      {{n(4), kB, n(3)}, {times_b(12)}, concat_rule(0, 4)},
      {{n(2), n(4), kB}, {n(2), times_b(4)}, concat_rule(1, 4)},
      {{n(2), n(4), kB}, {n(4), times_b(2)}, concat_rule(1, 2)},
      {{times_b(6)}, {kB, n(2), n(3)}, concat_rule(0, 1)},
      // 3 × B × 2 has no dimension of B rows in the middle of two others of B.
      {{n(3), kB, n(2)}, {n(2), times_b(3)}, SplitRule{}},
      // A sample would be spread over rows of two samples.
      {{n(4), kB}, {kB, n(4)}, SplitRule{}},
  };
  for (const Example& example : examples) {
    GraphMaker maker;
    const TensorId x = maker.input("x", example.from);
    std::vector<Value> sizes;
    for (const Affine& size : example.to) sizes.push_back(size_value(size.a, size.c));
    const TensorId y =
        maker.op("aten.view.default", {tensor_value(x), list_value(sizes)}, example.to);
    EXPECT_EQ(rule_of(std::move(maker), y), example.rule) << affine_text(example.to[0]);
  }
}

TEST(Split, AnOperatorThatTheTableLacksIsWholeAndItsResultIsCutAgain) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB, n(3)});
  const TensorId strange = maker.op("aten.strange.default", {tensor_value(x)}, {n(2), kB});
  const TensorId total = maker.op("aten.other.default", {tensor_value(x)}, {n(2), n(1)});
  const TensorId scaled =
      maker.op("aten.mul.Tensor", {tensor_value(strange), tensor_value(total)}, {n(2), kB});
  const SplitAnalysis splits = analyze_splits(std::move(maker).build());
  EXPECT_EQ(splits.rules[strange].kind, SplitKind::kWhole);
  EXPECT_FALSE(splits.reason[OpId(0)].empty());
  EXPECT_EQ(splits.uses[OpId(0)][0], OperandUse::kWhole);
  EXPECT_EQ(splits.rules[scaled], concat_rule(1));
  EXPECT_EQ(splits.uses[OpId(2)][0], OperandUse::kSlice);
  EXPECT_EQ(splits.uses[OpId(2)][1], OperandUse::kSame);
  EXPECT_FALSE(has_split_rule("aten.strange.default"));
  EXPECT_TRUE(has_split_rule("aten.mm.default"));
}

// sum(x) over the batch, plus or times w.
struct SumReader {
  explicit SumReader(const std::string& type, Phase phase = Phase::kForward) {
    GraphMaker maker;
    const TensorId x = maker.input("x", {kB, n(3)});
    const TensorId w = maker.parameter("w", {n(3)});
    const TensorId sum = maker.op("aten.sum.dim_IntList", {tensor_value(x), ints({0})}, {n(3)});
    result = maker.op(type, {tensor_value(sum), tensor_value(w)}, {n(3)}, {.phase = phase});
    splits = analyze_splits(std::move(maker).build());
  }
  OperandUse use(std::size_t operand) const { return splits.uses[OpId(1)][operand]; }

  TensorId result;
  SplitAnalysis splits;
};

TEST(Split, ASumStaysASumWhereTheOpIsLinear) {
  const SumReader product("aten.mul.Tensor");
  EXPECT_EQ(product.splits.rules[product.result], kSumRule);
  EXPECT_EQ(product.use(0), OperandUse::kPartial);
  const SumReader penalty("aten.add.Tensor");
  EXPECT_EQ(penalty.splits.rules[penalty.result], kSumRule);
  EXPECT_EQ(penalty.use(1), OperandUse::kOnce);
}

TEST(Split, ASumIsReducedWhereTheOpIsNotLinearAndBeforeTheUpdate) {
  const SumReader largest("aten.maximum.default");
  EXPECT_EQ(largest.splits.rules[largest.result], kSameRule);
  EXPECT_EQ(largest.use(0), OperandUse::kReduced);
  const SumReader update("aten.add.Tensor", Phase::kUpdate);
  EXPECT_EQ(update.splits.rules[update.result], kSameRule);
  EXPECT_EQ(update.use(0), OperandUse::kReduced);
  EXPECT_EQ(update.use(1), OperandUse::kSame);
}

// Zeros of a gradient's sum wait for its own samples alone; ones would add up.
TEST(Split, ZerosOfASumAreASum) {
  for (const bool zeros : {true, false}) {
    GraphMaker maker;
    const TensorId x = maker.input("x", {kB, n(3)});
    const TensorId sum = maker.op("aten.sum.dim_IntList", {tensor_value(x), ints({0})}, {n(3)},
                                  {.phase = Phase::kBackward});
    const TensorId made =
        maker.op(zeros ? "aten.new_zeros.default" : "aten.new_ones.default",
                 {tensor_value(sum), ints({5})}, {n(5)}, {.phase = Phase::kBackward});
    const SplitAnalysis splits = analyze_splits(std::move(maker).build());
    EXPECT_EQ(splits.rules[made], zeros ? kSumRule : kSameRule);
  }
}

TEST(Split, WhatWorksAcrossTheBatchIsWhole) {
  const auto whole = [](const std::string& type, std::vector<Value> rest, std::vector<Affine> out) {
    GraphMaker maker;
    std::vector<Value> args = {tensor_value(maker.input("x", {kB, n(3)}))};
    args.insert(args.end(), rest.begin(), rest.end());
    const TensorId y = maker.op(type, args, out);
    return rule_of(std::move(maker), y).kind == SplitKind::kWhole;
  };
  const Value no{.kind = Value::Kind::kBool, .integer = {0, 0}};
  EXPECT_TRUE(whole("aten._softmax.default", {int_value(0), no}, {kB, n(3)}));
  EXPECT_FALSE(whole("aten._softmax.default", {int_value(1), no}, {kB, n(3)}));
  EXPECT_TRUE(whole("aten.select.int", {int_value(0), int_value(0)}, {n(3)}));
  EXPECT_FALSE(whole("aten.select.int", {int_value(1), int_value(0)}, {kB}));
  EXPECT_TRUE(
      whole("aten.slice.Tensor", {int_value(0), int_value(0), size_value(1, -1)}, {{1, -1}, n(3)}));
  EXPECT_TRUE(whole("aten.squeeze.dim", {int_value(0)}, {kB, n(3)}));
  EXPECT_FALSE(whole("aten.squeeze.dim", {int_value(1)}, {kB, n(3)}));
  EXPECT_TRUE(whole("aten.cumsum.default", {int_value(0)}, {kB, n(3)}));
  EXPECT_TRUE(whole("aten.amax.default", {ints({0})}, {n(3)}));
  EXPECT_TRUE(whole("aten.flip.default", {ints({0, 1})}, {kB, n(3)}));
}

TEST(Split, AMeanOverTheLabelsThatAreNotIgnoredIsWhole) {
  for (const std::int64_t reduction : {1, 2}) {
    GraphMaker maker;
    const TensorId x = maker.input("x", {kB, n(3)});
    const TensorId label = maker.input("label", {kB}, DType::kInt64);
    const TensorId loss = maker.op(
        "aten.nll_loss_forward.default",
        {tensor_value(x), tensor_value(label), Value{}, int_value(reduction), int_value(-100)}, {});
    EXPECT_EQ(rule_of(std::move(maker), loss).kind,
              reduction == 1 ? SplitKind::kWhole : SplitKind::kSum);
  }
}

// x[arange(B), …]: `reader` is a second reader of the row numbers.
struct RowNumbers {
  explicit RowNumbers(const std::string& reader) {
    GraphMaker maker;
    const TensorId x = maker.input("x", {kB, n(5)});
    const TensorId column = maker.input("column", {kB}, DType::kInt64);
    rows = maker.op("aten.arange.default", {size_value(1, 0)}, {kB}, {.dtype = DType::kInt64});
    taken =
        maker.op("aten.index.Tensor",
                 {tensor_value(x), list_value({tensor_value(rows), tensor_value(column)})}, {kB});
    maker.op(reader, {tensor_value(rows)}, {kB}, {.dtype = DType::kInt64});
    splits = analyze_splits(std::move(maker).build());
  }
  TensorId rows, taken;
  SplitAnalysis splits;
};

TEST(Split, RowNumbersAreLocalWhereTheyIndexATensorCutAlike) {
  const RowNumbers local("aten.clone.default");
  EXPECT_EQ(local.splits.rules[local.rows].kind, SplitKind::kLocal);
  EXPECT_EQ(local.splits.rules[local.taken], concat_rule(0));
  EXPECT_EQ(local.splits.uses[OpId(1)][1], OperandUse::kLocal);
}

TEST(Split, RowNumbersThatAreReadAsNumbersAreThoseOfTheWholeBatch) {
  const RowNumbers numbers("aten.neg.default");
  EXPECT_EQ(numbers.splits.rules[numbers.rows].kind, SplitKind::kWhole);
  EXPECT_FALSE(numbers.splits.reason[OpId(0)].empty());
  // Rows of the whole cannot be looked up in a slice.
  EXPECT_EQ(numbers.splits.rules[numbers.taken].kind, SplitKind::kWhole);
}

TEST(Split, BatchNormalisationKeepsItsStatisticsWithTheSlice) {
  GraphBuilder builder("norm");
  const TensorId x =
      builder.add_tensor({.name = "x", .role = TensorRole::kInput, .shape = {kB, n(4), n(3)}});
  std::vector<Value> args = {tensor_value(x)};
  for (const char* name : {"weight", "bias"}) {
    args.push_back(tensor_value(
        builder.add_tensor({.name = name, .role = TensorRole::kParameter, .shape = {n(4)}})));
  }
  for (const char* name : {"mean", "var"}) {
    args.push_back(tensor_value(
        builder.add_tensor({.name = name, .role = TensorRole::kBuffer, .shape = {n(4)}})));
  }
  args.push_back({.kind = Value::Kind::kBool, .integer = {0, 1}});
  args.push_back(float_value(0.1));
  args.push_back(float_value(1e-5));
  std::vector<TensorId> outputs = {builder.add_tensor({.name = "y", .shape = {kB, n(4), n(3)}})};
  for (const char* name : {"saved_mean", "saved_deviation", "next_mean", "next_var"}) {
    outputs.push_back(builder.add_tensor({.name = name, .shape = {n(4)}}));
  }
  builder.add_op({.name = "norm",
                  .type = "aten._native_batch_norm_legit_functional.default",
                  .args = args,
                  .outputs = outputs});
  const SplitAnalysis splits = analyze_splits(std::move(builder).build("test"));
  EXPECT_EQ(splits.rules[outputs[0]], concat_rule(0));
  EXPECT_EQ(splits.rules[outputs[1]].kind, SplitKind::kLocal);
  EXPECT_EQ(splits.rules[outputs[2]].kind, SplitKind::kLocal);
  EXPECT_EQ(splits.rules[outputs[3]], kMeanRule);
  EXPECT_EQ(splits.rules[outputs[4]], kMeanRule);
}

// Files may hold any argument beside any operator: no rule may trust what it finds.
Value random_value(Rng& rng, const std::vector<TensorId>& tensors, int depth = 0) {
  switch (rng.below(depth < 2 ? 8 : 6)) {
    case 0:
    case 1:
      return tensor_value(tensors[rng.below(tensors.size())]);
    case 2:
      return int_value(static_cast<std::int64_t>(rng.below(7)) - 3);
    case 3:
      return int_value(rng.below(2) == 0 ? INT64_MAX : INT64_MIN);
    case 4:
      return size_value(static_cast<std::int64_t>(rng.below(5)), 0);
    case 5:
      return Value{};
    default: {
      std::vector<Value> items(rng.below(4));
      for (Value& item : items) item = random_value(rng, tensors, depth + 1);
      return list_value(items);
    }
  }
}

std::vector<Affine> random_shape(Rng& rng) {
  const Affine sizes[] = {kB, kB, times_b(4), n(0), n(1), n(3), n(4), {2, 1}};
  std::vector<Affine> shape(rng.below(5));
  // At most two sizes that depend on the batch: the builder refuses tensors of absurd size.
  for (std::size_t i = 0; i < shape.size(); ++i) {
    shape[i] = i < 2 ? sizes[rng.below(std::size(sizes))] : n(sizes[3 + rng.below(4)].c);
  }
  if (rng.below(2) == 0) std::reverse(shape.begin(), shape.end());
  return shape;
}

TEST(Split, RulesSurviveArgumentsOfAnyForm) {
  const std::vector<std::string_view> types = rule_types();
  Rng rng(5);
  std::size_t sliceable = 0, ops = 0;
  for (int round = 0; round < 400; ++round) {
    GraphBuilder builder("any");
    std::vector<TensorId> tensors;
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(builder.add_tensor({.name = "in" + std::to_string(i),
                                            .role = TensorRole::kInput,
                                            .shape = random_shape(rng)}));
    }
    for (int i = 0; i < 100; ++i) {
      std::vector<Value> args(rng.below(7) + 1);
      for (Value& arg : args) arg = random_value(rng, tensors);
      // The builder asks aliases for a tensor.
      args[rng.below(args.size())] = tensor_value(tensors[rng.below(tensors.size())]);
      std::vector<TensorId> outputs(rng.below(4) + 1);
      const std::size_t made = rng.below(outputs.size());  // the others are not read by anybody
      for (std::size_t j = 0; j < outputs.size(); ++j) {
        if (j < made) continue;
        outputs[j] = builder.add_tensor({.name = "t" + std::to_string(i) + "_" + std::to_string(j),
                                         .shape = random_shape(rng)});
      }
      builder.add_op({.name = "op" + std::to_string(i),
                      .type = std::string(types[rng.below(types.size())]),
                      .args = args,
                      .outputs = outputs});
      for (TensorId output : outputs) {
        if (output.valid()) tensors.push_back(output);
      }
    }
    const ModelGraph graph = std::move(builder).build("test");
    const SplitAnalysis splits = analyze_splits(graph);
    for (OpId op : graph.op_ids()) {
      ++ops;
      sliceable += splits.sliceable[op];
      EXPECT_EQ(splits.sliceable[op] != 0, splits.reason[op].empty());
    }
    for (TensorId id : graph.tensor_ids()) {
      const SplitRule rule = splits.rules[id];
      if (rule.kind != SplitKind::kConcat) continue;
      ASSERT_LT(rule.dim, graph.shape(id).size());
      const Affine size = graph.shape(id)[rule.dim];
      EXPECT_GT(rule.outer, 0);
      EXPECT_TRUE(size.a > 0 && size.c == 0 && size.a % rule.outer == 0);
    }
  }
  EXPECT_EQ(ops, 40000u);
  EXPECT_GT(sliceable, 1000u);  // the rules were reached, not only their refusals
}

}  // namespace
}  // namespace heterog::graph
