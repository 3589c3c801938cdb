// One call over lists gives what a call for each gives.
#include "runtime/kernels/list_call.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/graphs.h"

namespace heterog::runtime {
namespace {

using graph::float_value;
using graph::tensor_value;
using graph::Value;

// What an operator takes after its first tensor.
enum class Other { kTensor, kOneNumber, kOwnNumber, kNumber };

struct Call {
  std::string type;
  std::vector<Other> others;
};

std::string name_of(const testing::TestParamInfo<Call>& info) {
  std::string name = std::to_string(info.index) + info.param.type;
  std::erase(name, '.');
  return name;
}

const std::vector<std::vector<graph::Affine>> kListShapes = {
    {support::n(3), support::n(5)}, {support::n(7)}, {support::n(1)}};

// The op on three tensors of their own, and its operands in float32; numbers in float64.
struct ListCase {
  std::vector<OpId> ops;
  graph::ModelGraph graph;
  std::vector<at::Tensor> operands;
};

ListCase make_case(const Call& call) {
  support::GraphMaker make("lists");
  at::manual_seed(3);
  const TensorId shared = make.input("rate", {}, graph::DType::kFloat64);
  const at::Tensor rate = at::full({}, 0.3, at::kDouble);
  std::vector<TensorId> results;
  std::vector<at::Tensor> operands;
  const auto input = [&](std::vector<graph::Affine> shape, graph::DType dtype) {
    return make.input("x" + std::to_string(operands.size()), std::move(shape), dtype);
  };
  using enum graph::DType;
  const auto random = [](const std::vector<graph::Affine>& shape) {
    return at::rand(sizes_at(shape, 1)) + 0.5;
  };
  for (const auto& shape : kListShapes) {
    std::vector<Value> args = {tensor_value(input(shape, kFloat32))};
    operands.push_back(random(shape));
    for (Other other : call.others) {
      if (other == Other::kNumber) {
        args.push_back(float_value(0.7));
        continue;
      }
      if (other == Other::kTensor) {
        args.push_back(tensor_value(input(shape, kFloat32)));
        operands.push_back(random(shape));
        continue;
      }
      const bool own = other == Other::kOwnNumber;
      const TensorId number = own ? input({}, kFloat64) : shared;
      args.push_back(tensor_value(number));
      operands.push_back(own ? at::rand({}, at::kDouble) : rate);
    }
    results.push_back(make.op(call.type, args, shape));
  }
  std::vector<OpId> ops;
  for (TensorId result : results) ops.push_back(make.maker(result));
  return {ops, std::move(make).build(), operands};
}

// The product with a number that all share is a call of its own, which rounds.
void expect_same(const Call& call, const at::Tensor& is, const at::Tensor& expected) {
  if (call.type == "aten.addcmul.default" && call.others[1] == Other::kOneNumber) {
    EXPECT_TRUE(at::allclose(is, expected, 2e-7, 0));
  } else {
    EXPECT_TRUE(at::equal(is, expected));
  }
}

class ListCallTest : public testing::TestWithParam<Call> {};

TEST_P(ListCallTest, GivesWhatCallsForEachGive) {
  const ListCase one = make_case(GetParam());
  const std::size_t width = one.operands.size() / one.ops.size();
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < one.ops.size(); ++i) {
    const auto own = std::span(one.operands).subspan(i * width, width);
    expected.push_back(execute(one.graph, one.ops[i], own, {1, 1}, {}).at(0));
  }
  const ListCall call(one.graph, one.ops, {1, 1}, {});
  std::vector<bool> given_away(one.operands.size(), false);
  const auto apart = call.run(one.operands, given_away);
  for (std::size_t i = 0; i < one.ops.size(); ++i) {
    expect_same(GetParam(), apart[i], expected[i]);
    EXPECT_EQ(apart[i].scalar_type(), at::kFloat);
    EXPECT_FALSE(apart[i].is_same(one.operands[i * width]));
  }
  for (std::size_t i = 0; i < one.ops.size(); ++i) given_away[i * width] = true;
  const auto over = call.run(one.operands, given_away);
  for (std::size_t i = 0; i < one.ops.size(); ++i) {
    expect_same(GetParam(), over[i], expected[i]);
    // Without a form for these operands, each is called by itself.
    if (GetParam().others != std::vector{Other::kOwnNumber}) {
      EXPECT_TRUE(over[i].is_same(one.operands[i * width]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, ListCallTest,
    testing::Values(
        Call{"aten.sqrt.default", {}}, Call{"aten.sign.default", {}},
        Call{"aten.add.Tensor", {Other::kTensor}}, Call{"aten.add.Tensor", {Other::kNumber}},
        Call{"aten.add.Tensor", {Other::kOneNumber}}, Call{"aten.sub.Tensor", {Other::kTensor}},
        Call{"aten.mul.Tensor", {Other::kTensor}}, Call{"aten.mul.Tensor", {Other::kNumber}},
        Call{"aten.mul.Tensor", {Other::kOneNumber}}, Call{"aten.mul.Tensor", {Other::kOwnNumber}},
        Call{"aten.div.Tensor", {Other::kTensor}}, Call{"aten.div.Tensor", {Other::kOneNumber}},
        Call{"aten.maximum.default", {Other::kTensor}},
        Call{"aten.pow.Tensor_Scalar", {Other::kNumber}},
        Call{"aten.lerp.Scalar", {Other::kTensor, Other::kNumber}},
        Call{"aten.addcmul.default", {Other::kTensor, Other::kTensor}},
        Call{"aten.addcmul.default", {Other::kTensor, Other::kOneNumber}},
        Call{"aten.addcdiv.default", {Other::kTensor, Other::kTensor}}),
    name_of);

}  // namespace
}  // namespace heterog::runtime
