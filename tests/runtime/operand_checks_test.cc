// What kernels take on trust is checked: for every row of the table a call that is taken, and calls
// that are refused before the kernel sees them.
#include "runtime/kernels/operand_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/graph_io.h"
#include "operators/allowed.h"
#include "runtime/kernels/dispatcher.h"
#include "runtime/kernels/execute.h"

namespace heterog::runtime {
namespace {

using Values = std::vector<c10::IValue>;
using Ints = std::vector<std::int64_t>;

const c10::IValue kNone;

c10::IValue f(at::IntArrayRef sizes) { return at::ones(sizes); }
c10::IValue i(const Ints& values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kLong).reshape(sizes);
}
c10::IValue i(const Ints& values) { return i(values, {static_cast<std::int64_t>(values.size())}); }
c10::IValue zeros(at::IntArrayRef sizes) { return at::zeros(sizes, at::kLong); }
c10::IValue mask(const std::vector<bool>& values) {
  c10::List<bool> list;
  for (bool value : values) list.push_back(value);
  return list;
}
c10::IValue n(std::int64_t value) { return value; }
c10::IValue n(const Ints& values) { return c10::IValue(values); }

// Another value of one argument, and what the error says.
struct Wrong {
  std::size_t argument;
  c10::IValue value;
  std::string part;
};
struct Example {
  std::vector<std::string> types;  // of the same arguments
  Values arguments;
  std::vector<Wrong> wrong;
};

std::vector<Example> losses() {
  const Values ctc = {f({4, 2, 3}), i({1, 2, 2, 1}, {2, 2}), n({4, 3}), n({2, 1}), n(0), false};
  Values ctc_tensor = ctc, ctc_backward = ctc, ctc_backward_tensor;
  ctc_tensor[2] = i({4, 3}), ctc_tensor[3] = i({2, 1});
  ctc_backward = {f({2}), ctc[0], ctc[1], ctc[2], ctc[3], f({2}), f({2, 4, 5}), n(0), false};
  ctc_backward_tensor = ctc_backward;
  ctc_backward_tensor[3] = i({4, 3}), ctc_backward_tensor[4] = i({2, 1});
  return {
      {{"nll_loss_backward.default"},
       {f({}), f({2, 3}), i({2, -100}), f({3}), n(1), n(-100), f({})},
       {{0, f({2}), "'grad_output' has 2 elements, not 1"},
        {2, i({2, 3}), "'target' holds 3, outside 0 … 2"},
        {2, i({2, -1}), "'target' holds -1, outside 0 … 2"},
        {2, i({2, 1, 0}), "'target' has 3 elements, not 2"},
        {3, f({2}), "'weight' has 2 elements, not 3"},
        {4, n(3), "'reduction' holds 3, outside 0 … 2"},
        {6, f({0}), "'total_weight' has 0 elements, not 1"}}},
      {{"nll_loss2d_backward.default"},
       {f({}), f({1, 3, 1, 2}), i({2, -100}, {1, 1, 2}), f({3}), n(1), n(-100), f({})},
       {{2, i({2, 9}, {1, 1, 2}), "'target' holds 9, outside 0 … 2"},
        {2, i({2}, {1, 1, 1}), "'target' has sizes [1, 1, 1], not [1, 1, 2]"}}},
      {{"multi_margin_loss_backward.default"},
       {f({}), f({2, 3}), i({2, 0}), 1, 1.0, f({3}), n(1)},
       {{2, i({2, 3}), "'target' holds 3, outside 0 … 2"},
        {5, f({1}), "'weight' has 1 elements, not 3"}}},
      {{"multilabel_margin_loss_backward.default"},
       {f({}), f({1, 3}), i({2, -1, 0}, {1, 3}), n(1), f({1, 3})},
       {{2, i({2, -1, 3}, {1, 3}), "'target' holds 3, outside -1 … 2"},
        {4, f({3}), "'is_target' has sizes [3], not [1, 3]"}}},
      {{"_ctc_loss.default"},
       ctc,
       {{1, i({1, 3, 2, 1}, {2, 2}), "'targets' holds 3, outside 0 … 2"},
        {2, n({4, 5}), "'input_lengths' holds 5, outside 0 … 4"},
        {3, n({2, 3}), "'target_lengths' holds 3, outside 0 … 2"},
        {3, n(Ints{2}), "'target_lengths' holds 1 lengths, not 2"},
        {4, n(3), "'blank' holds 3, outside 0 … 2"}}},
      {{"_ctc_loss.Tensor"}, ctc_tensor, {{2, i({4, 5}), "'input_lengths' holds 5"}}},
      {{"_ctc_loss_backward.default"},
       ctc_backward,
       {{5, f({1}), "'neg_log_likelihood' has 1 elements, not 2"},
        {6, f({2, 4, 3}), "'log_alpha' has sizes [2, 4, 3], not [2, 4, 5]"}}},
      {{"_ctc_loss_backward.Tensor"}, ctc_backward_tensor, {{0, f({}), "'grad' has 1 elements"}}},
  };
}

std::vector<Example> embeddings() {
  const c10::IValue words = i({1, 4, 0}), starts = i({0, 2}), bag_of = i({0, 0, 1});
  const Values bag = {f({5, 2}), words, starts, false, n(0), false, kNone, false, n(-1)};
  return {
      {{"embedding_dense_backward.default"},
       {f({3, 2}), words, n(5), n(-1), false},
       {{0, f({2, 2}), "'grad_output' has sizes [2, 2], not [3, 2]"},
        {1, i({1, 5, 0}), "'indices' holds 5, outside 0 … 4"}}},
      {{"_embedding_bag.default", "_embedding_bag_forward_only.default"},
       bag,
       {{1, i({1, 5, 0}), "'indices' holds 5, outside 0 … 4"},
        {2, i({0, 4}), "'offsets' holds 4, outside 0 … 3"},
        {2, i({1, 2}), "'offsets' holds 1, not 0"},
        {2, i({0, 2, 1}), "'offsets' does not ascend"},
        {6, f({2}), "'per_sample_weights' has 2 elements, not 3"},
        {8, n(5), "'padding_idx' holds 5, outside -1 … 4"}}},
      {{"_embedding_bag_backward.default"},
       {f({2, 2}), words, starts, bag_of, i({2, 1}), zeros({0}), n(5), false, n(0), false, kNone,
        n(-1)},
       {{3, i({0, 0, 2}), "'offset2bag' holds 2, outside 0 … 1"},
        {4, i({2}), "'bag_size' has 1 elements, not 2"},
        {8, n(2), "'maximum_indices' has sizes [0], not [2, 2]"}}},
      {{"_embedding_bag_dense_backward.default"},
       {f({2, 2}), words, bag_of, i({2, 1}), zeros({0}), n(5), false, n(0), kNone, n(-1)},
       {{2, i({0, 0}), "'offset2bag' has 2 elements, not 3"}}},
      {{"_embedding_bag_per_sample_weights_backward.default"},
       {f({2, 2}), f({5, 2}), words, starts, bag_of, n(0), n(-1)},
       {{1, f({5, 3}), "'weight' has sizes [5, 3], not [5, 2]"},
        {2, i({1, 5, 0}), "'indices' holds 5, outside 0 … 4"}}},
  };
}

std::vector<Example> norms() {
  const c10::IValue x = f({2, 4, 3}), of_channels = f({4});
  const c10::IValue all = mask({true, true, true});
  const auto groups = [&](Values rest) {
    rest.insert(rest.end(), {n(2), n(4), n(3), n(2)});
    return rest;
  };
  Values group = groups({x, of_channels, of_channels});
  group.emplace_back(1e-5);
  Values group_backward = groups({x, x, f({2, 2}), f({2, 2}), of_channels});
  group_backward.push_back(all);
  return {
      {{"native_batch_norm.default"},
       {x, of_channels, of_channels, of_channels, of_channels, true, 0.1, 1e-5},
       {{3, f({3}), "'running_mean' has 3 elements, not 4"}}},
      {{"_native_batch_norm_legit.no_stats"},
       {x, of_channels, of_channels, true, 0.1, 1e-5},
       {{3, false, "'running_mean' is missing"}}},
      {{"_native_batch_norm_legit_functional.default"},
       {x, of_channels, of_channels, of_channels, of_channels, true, 0.1, 1e-5},
       {{4, f({5}), "'running_var' has 5 elements, not 4"}}},
      {{"_native_batch_norm_legit_no_training.default"},
       {x, of_channels, of_channels, of_channels, of_channels, 0.1, 1e-5},
       {{2, f({0}), "'bias' has 0 elements, not 4"}}},
      {{"native_batch_norm_backward.default"},
       {x, x, of_channels, of_channels, of_channels, of_channels, of_channels, true, 1e-5, all},
       {{0, f({2, 4}), "'grad_out' has sizes [2, 4], not [2, 4, 3]"},
        {6, f({1}), "'save_invstd' has 1 elements, not 4"},
        {5, kNone, "'save_mean' is missing"}}},
      {{"native_layer_norm_backward.default"},
       {x, x, n(Ints{3}), f({2, 4, 1}), f({2, 4, 1}), f({3}), f({3}), all},
       {{2, n(Ints{4}), "'input' of sizes [2, 4, 3] does not end in [4]"},
        {3, f({2}), "'mean' has 2 elements, not 8"},
        {4, f({2}), "'rstd' has 2 elements, not 8"},
        {5, f({2}), "'weight' has 2 elements, not 3"}}},
      {{"_fused_rms_norm_backward.default"},
       {x, x, n(Ints{3}), f({2, 4, 1}), f({3}), mask({true, true})},
       {{3, f({2}), "'rstd' has 2 elements, not 8"}}},
      {{"native_group_norm.default"},
       group,
       {{1, f({3}), "'weight' has 3 elements, not 4"},
        {6, n(0), "'group' holds 0, outside 1 … 4"},
        {5, n(4), "'input' has 24 elements, not 32"}}},
      {{"native_group_norm_backward.default"},
       group_backward,
       {{0, f({2, 4, 2}), "'grad_out' has sizes [2, 4, 2], not [2, 4, 3]"},
        {2, f({2}), "'mean' has 2 elements, not 4"}}},
      {{"_weight_norm_interface.default"},
       {f({4, 3}), f({4, 1}), n(0)},
       {{1, f({1}), "'g' has sizes [1], not [4, 1]"}, {2, n(-1), "'dim' holds -1, not 0"}}},
      {{"_weight_norm_interface_backward.default"},
       {f({4, 3}), f({4, 3}), f({4, 1}), f({4, 1}), n(0)},
       {{3, f({3}), "'saved_norms' has 3 elements, not 4"}}},
      {{"_softmax_backward_data.default", "_log_softmax_backward_data.default"},
       {f({2, 3}), f({2, 3}), n(1), static_cast<std::int64_t>(at::kFloat)},
       {{0, f({2, 4}), "'grad_output' has sizes [2, 4], not [2, 3]"}}},
  };
}

std::vector<Example> pooling() {
  const c10::IValue plane = f({2, 3, 4, 4}), small = f({2, 3, 2, 2});
  const c10::IValue room = f({2, 3, 4, 4, 4}), corner = f({2, 3, 2, 2, 2});
  const Wrong fewer = {0, f({2, 1, 2, 2}),
                       "'grad_output' has sizes [2, 1, 2, 2], not [2, 3, 2, 2]"};
  const Wrong fewer3 = {0, f({2, 1, 2, 2, 2}), "'grad_output' has sizes [2, 1, 2, 2, 2], not"};
  const auto far = [](std::size_t at, at::IntArrayRef sizes) {
    return Wrong{at, at::full(sizes, 64, at::kLong), "'indices' holds 64, outside 0 … "};
  };
  const Ints two = {2, 2}, none = {0, 0}, ones = {1, 1};
  const Ints two3 = {2, 2, 2}, none3 = {0, 0, 0}, ones3 = {1, 1, 1};
  return {
      {{"_adaptive_avg_pool2d_backward.default"}, {small, plane}, {fewer}},
      {{"_adaptive_avg_pool3d_backward.default"}, {corner, room}, {fewer3}},
      {{"adaptive_max_pool2d_backward.default"},
       {small, plane, zeros({2, 3, 2, 2})},
       {fewer, far(2, {2, 3, 2, 2})}},
      {{"adaptive_max_pool3d_backward.default"},
       {corner, room, zeros({2, 3, 2, 2, 2})},
       {fewer3, far(2, {2, 3, 2, 2, 2})}},
      {{"fractional_max_pool2d_backward.default"},
       {small, plane, n(two), n(two), zeros({2, 3, 2, 2})},
       {fewer, far(4, {2, 3, 2, 2})}},
      {{"fractional_max_pool3d_backward.default"},
       {corner, room, n(two3), n(two3), zeros({2, 3, 2, 2, 2})},
       {fewer3, far(4, {2, 3, 2, 2, 2})}},
      {{"max_pool2d_with_indices_backward.default"},
       {small, plane, n(two), n(two), n(none), n(ones), false, zeros({2, 3, 2, 2})},
       {fewer,
        far(7, {2, 3, 2, 2}),
        {7, at::full({2, 3, 2, 2}, -1, at::kLong), "'indices' holds -1, outside 0 … 15"},
        {7, zeros({1, 3, 2, 2}), "'indices' has sizes [1, 3, 2, 2], not [2, 3, 2, 2]"}}},
      {{"max_pool3d_with_indices_backward.default"},
       {corner, room, n(two3), n(two3), n(none3), n(ones3), false, zeros({2, 3, 2, 2, 2})},
       {fewer3, far(7, {2, 3, 2, 2, 2})}},
      {{"avg_pool2d_backward.default"},
       {small, plane, n(two), n(two), n(none), false, true, kNone},
       {fewer, {0, f({2, 3, 3, 3}), "'grad_output' has sizes [2, 3, 3, 3], not [2, 3, 2, 2]"}}},
      {{"avg_pool3d_backward.default"},
       {corner, room, n(two3), n(two3), n(none3), false, true, kNone},
       {fewer3}},
  };
}

std::vector<Example> sampling() {
  const Wrong longer = {2, n({1, 1, 1, 1, 1, 1, 1}), "'padding' holds "};
  std::vector<Example> all;
  Ints sizes = {2, 3}, padded = {2, 3}, padding;
  for (int dims = 1; dims <= 3; ++dims) {
    sizes.push_back(4), padded.push_back(6);
    padding.insert(padding.end(), {1, 1});
    const std::string backward = fmt::format("_pad{}d_backward.default", dims);
    const Wrong as_before = {0, f(sizes), "'grad_output' has sizes "};
    all.push_back({{"replication" + backward, "reflection" + backward},
                   {f(padded), f(sizes), n(padding)},
                   {as_before, longer}});
  }
  const c10::IValue plane = f({2, 3, 4, 4}), image = f({2, 3, 5, 6});
  const c10::IValue both = mask({true, true});
  all.insert(
      all.end(),
      {{{"grid_sampler_2d_backward.default"},
        {f({2, 3, 5, 6}), plane, f({2, 5, 6, 2}), n(0), n(0), false, both},
        {{0, f({2, 1, 5, 6}), "'grad_output' has sizes [2, 1, 5, 6], not [2, 3, 5, 6]"},
         {3, n(3), "'interpolation_mode' holds 3, outside 0 … 2"}}},
       {{"grid_sampler_3d_backward.default"},
        {f({2, 3, 5, 6, 2}), f({2, 3, 4, 4, 4}), f({2, 5, 6, 2, 3}), n(0), n(0), false, both},
        {{2, f({1, 5, 6, 2, 3}), "'grid' has sizes [1, 5, 6, 2, 3], not [2, 5, 6, 2, 3]"}}},
       {{"_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default"},
        {plane, n({5, 6}), false, 1.25, 1.5},
        {{4, 2.5, "'scales_w' makes 10 of 4, not 6"}}},
       {{"_upsample_bilinear2d_aa_backward.default", "_upsample_bicubic2d_aa_backward.default"},
        {image, n({5, 6}), n({2, 3, 4, 4}), false, 1.25, 1.5},
        {{0, plane, "'grad_output' has sizes [2, 3, 4, 4], not [2, 3, 5, 6]"}}},
       {{"_cdist_backward.default"},
        {f({2, 3, 4}), f({2, 3, 5}), f({2, 4, 5}), 2.0, f({2, 3, 4})},
        {{0, f({2, 3, 3}), "'grad' has sizes [2, 3, 3], not [2, 3, 4]"},
         {4, f({2, 3, 3}), "'cdist' has sizes [2, 3, 3], not [2, 3, 4]"}}},
       {{"_pdist_backward.default"},
        {f({3}), f({3, 4}), 2.0, f({3})},
        {{0, f({2}), "'grad' has sizes [2], not [3]"}}},
       {{"unfold_backward.default"},
        {f({2, 3, 2}), n({2, 4}), n(1), n(2), n(1)},
        {{0, f({2, 2, 2}), "'grad_in' has sizes [2, 2, 2], not [2, 3, 2]"},
         {4, n(0), "'step' holds 0, outside 1 … "}}},
       {{"_reshape_alias.default"},
        {f({2, 3}), n({3, 2}), n({2, 1})},
        {{2, n({4, 1}), "'stride' holds 9, outside 0 … 5"},
         {1, n({4, 2}), "'self' has 6 elements, not 8"}}}});
  return all;
}

std::vector<Example> attention() {
  const c10::IValue q = f({2, 3, 4, 8}), k = f({2, 3, 5, 8});
  return {{{"_scaled_dot_product_flash_attention_for_cpu.default"},
           {q, k, k, 0.0, false, kNone, kNone},
           {{1, f({2, 1, 5, 8}), "'key' has sizes [2, 1, 5, 8], not [2, 3, 5, 8]"},
            {2, f({2, 3, 4, 8}), "'value' has sizes [2, 3, 4, 8], not [2, 3, 5, 8]"},
            {0, f({2, 3, 0, 8}), "'query' is empty"},
            {5, f({4, 4}), "'attn_mask' holds 4, not 5"}}},
          {{"_scaled_dot_product_flash_attention_for_cpu_backward.default"},
           {q, q, k, k, q, f({2, 3, 4}), 0.0, false, kNone, kNone},
           {{0, k, "'grad_out' has sizes [2, 3, 5, 8], not [2, 3, 4, 8]"},
            {5, f({2, 3, 1}), "'logsumexp' has sizes [2, 3, 1], not [2, 3, 4]"}}},
          {{"median.dim", "nanmedian.dim"}, {at::ones({2, 1}).expand({2, 3}), n(0), false}, {}}};
}

std::vector<Example> examples() {
  std::vector<Example> all;
  for (const auto& some : {losses(), embeddings(), norms(), pooling(), sampling(), attention()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

TEST(OperandChecks, NameOperatorsThatAGraphMayHold) {
  for (std::string_view type : checked_operators()) {
    EXPECT_TRUE(find_operator(type)) << type;
    EXPECT_TRUE(operators::is_allowed(type)) << type;
  }
}

TEST(OperandChecks, TakeWhatFitsAndRefuseWhatDoesNot) {
  std::map<std::string, int> seen;
  for (const Example& example : examples()) {
    for (const std::string& name : example.types) {
      const std::string type = "aten." + name;
      SCOPED_TRACE(type);
      ++seen[type];
      const OperandCheck check = operand_check(type);
      ASSERT_TRUE(check);
      const c10::OperatorHandle handle = operator_to_call(type);
      torch::jit::Stack good = example.arguments;
      EXPECT_NO_THROW(check_operands(check, handle.schema(), good));
      try {
        handle.callBoxed(good);
      } catch (const c10::NotImplementedError&) {  // a GPU's alone, in this version of PyTorch
        EXPECT_EQ(type, "aten._fused_rms_norm_backward.default");
      }
      for (const Wrong& wrong : example.wrong) {
        torch::jit::Stack bad = example.arguments;
        bad[wrong.argument] = wrong.value;
        try {
          check_operands(check, handle.schema(), bad);
          ADD_FAILURE() << "taken: " << wrong.part;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kInput);
          EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith(type + ": '"),
                                                   testing::HasSubstr(wrong.part)));
        }
      }
    }
  }
  for (std::string_view type : checked_operators()) {
    EXPECT_EQ(seen[std::string(type)], 1) << type << " has no example";
  }
}

// Rows are not read past: an expanded tensor is laid out before its kernel goes through it.
TEST(OperandChecks, GiveKernelsWhatHasNoGaps) {
  const std::string type = "aten.native_group_norm.default";
  const c10::OperatorHandle handle = operator_to_call(type);
  torch::jit::Stack stack = {
      at::randn({2, 4, 3}), at::ones({1}).expand({4}), kNone, n(2), n(4), n(3), n(2), 1e-5};
  check_operands(operand_check(type), handle.schema(), stack);
  EXPECT_TRUE(stack[1].toTensor().is_contiguous());
}

TEST(OperandChecks, ListsAreAsLongAsTheOperatorSays) {
  const auto handle = operator_to_call("aten.reflection_pad3d.default");
  const auto refused = [&](const Ints& padding) {
    try {
      check_lists(handle.schema(), {f({1, 4, 4, 4}), n(padding)});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused({1, 1, 1, 1, 1, 1}), "taken");
  EXPECT_EQ(refused({}), "aten.reflection_pad3d.default: 'padding' holds 0 items, not 6");
  EXPECT_EQ(refused({1, 1}), "aten.reflection_pad3d.default: 'padding' holds 2 items, not 6");
}

// What autograd writes for a pooling without a stride.
TEST(OperandChecks, APoolingWithoutAStrideIsTaken) {
  const auto handle = operator_to_call("aten.avg_pool2d_backward.default");
  torch::jit::Stack stack = {f({2, 3, 2, 2}), f({2, 3, 4, 4}), n({2, 2}), n(Ints{}),
                             n({0, 0}),       false,           true,      kNone};
  EXPECT_NO_THROW(check_lists(handle.schema(), stack));
  EXPECT_NO_THROW(
      check_operands(operand_check("aten.avg_pool2d_backward.default"), handle.schema(), stack));
}

// As an op of a graph: the message names the op.
TEST(OperandChecks, AreMadeBeforeAnOpRuns) {
  const graph::ModelGraph graph = graph::parse_graph(
      R"({"format": "heterog-graph", "version": 1, "name": "one", "dtype": "float32", "loss": 4,
    "tensors": [{"name": "g", "role": "input", "dtype": "float32", "shape": []},
                {"name": "x", "role": "input", "dtype": "float32", "shape": ["B", 3]},
                {"name": "t", "role": "input", "dtype": "int64", "shape": ["B"]},
                {"name": "y", "role": "activation", "dtype": "float32", "shape": ["B", 3]},
                {"name": "z", "role": "output", "dtype": "float32", "shape": []}],
    "ops": [{"name": "back", "phase": "forward", "op": "aten.nll_loss_backward.default",
             "args": ["%0", "%1", "%2", null, 1, -100, "%0"], "outputs": [3]},
            {"name": "total", "phase": "forward", "op": "aten.sum.default", "args": ["%3"],
             "outputs": [4]}]})",
      "f.json");
  const auto run = [&](const at::Tensor& target) {
    const std::vector<at::Tensor> operands = {at::ones({}), at::ones({2, 3}), target, at::ones({})};
    return execute(graph, OpId(0), operands, {2, 2}, {});
  };
  EXPECT_EQ(run(at::tensor({0, 2}, at::kLong))[0].size(1), 3);
  try {
    run(at::tensor({0, 12}, at::kLong));
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_STREQ(error.what(),
                 "op 'back': aten.nll_loss_backward.default: 'target' holds 12, outside 0 … 2");
  }
  try {
    run(at::Tensor());
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'target' is a result that its operator leaves"));
  }
}

}  // namespace
}  // namespace heterog::runtime
