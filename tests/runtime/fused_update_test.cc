// Kernels that take lists: one call for many gives what a call for each gives, whatever lies where.
#include "runtime/kernels/fused_update.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/kernels/execute.h"
#include "support/fused_graph.h"
#include "support/graphs.h"

namespace heterog::runtime {
namespace {

using graph::float_value;
using graph::list_value;
using graph::tensor_value;

graph::Value flag(bool value) {
  return {.kind = graph::Value::Kind::kBool, .integer = {0, value ? 1 : 0}};
}

// The update of parameters of these shapes by Adam with decoupled weight decay.
struct AdamGraph {
  std::vector<OpId> ops;
  graph::ModelGraph graph;
};

AdamGraph adam_graph(const std::vector<std::vector<graph::Affine>>& shapes, bool leaves_out) {
  graph::GraphBuilder builder("adam");
  const auto tensor = [&](const std::string& name, std::vector<graph::Affine> shape,
                          graph::TensorRole role, graph::DType dtype, TensorId replaces = {}) {
    return builder.add_tensor({.name = name,
                               .role = role,
                               .dtype = dtype,
                               .shape = std::move(shape),
                               .replaces = replaces});
  };
  using enum graph::TensorRole;
  const auto f32 = graph::DType::kFloat32, f64 = graph::DType::kFloat64;
  const TensorId lr = tensor("lr", {}, kInput, f64), step = tensor("step", {}, kInput, f64);
  const TensorId left_out = tensor("left_out", {}, kInput, f32);
  const TensorId loss = tensor("loss", {}, kOutput, f64);
  std::vector<TensorId> held;
  std::vector<OpId> ops;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::string name = "p" + std::to_string(i);
    held.push_back(tensor(name, shapes[i], kParameter, f32));
    held.push_back(tensor(name + "/g", shapes[i], kInput, f32));
    held.push_back(tensor(name + "/m", shapes[i], kBuffer, f32));
    held.push_back(tensor(name + "/v", shapes[i], kBuffer, f32));
  }
  builder.add_op({.name = "loss",
                  .type = "aten.mul.Tensor",
                  .args = {tensor_value(lr), tensor_value(step)},
                  .outputs = {loss}});
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const TensorId p = held[4 * i], g = held[4 * i + 1], m = held[4 * i + 2], v = held[4 * i + 3];
    const std::string name = "p" + std::to_string(i);
    const TensorId next = tensor(name + "/next", shapes[i], kOutput, f32, p);
    const TensorId next_m = tensor(name + "/next_m", shapes[i], kOutput, f32, m);
    const TensorId next_v = tensor(name + "/next_v", shapes[i], kOutput, f32, v);
    const auto one = [](TensorId id) { return list_value({tensor_value(id)}); };
    // In another order than the schema's, as a file may have them.
    std::vector<std::pair<std::string, graph::Value>> more;
    if (leaves_out) more.emplace_back("found_inf", tensor_value(left_out));
    more.emplace_back("lr", tensor_value(lr));
    more.emplace_back("beta1", float_value(0.9));
    more.emplace_back("beta2", float_value(0.99));
    more.emplace_back("weight_decay", float_value(0.1));
    more.emplace_back("eps", float_value(1e-8));
    more.emplace_back("amsgrad", flag(false));
    more.emplace_back("maximize", flag(false));
    ops.push_back(
        builder.add_op({.name = name + "/adamw",
                        .type = "aten._fused_adamw.tensor_lr",
                        .phase = graph::Phase::kUpdate,
                        .args = {one(p), one(g), one(m), one(v), list_value({}), one(step)},
                        .outputs = {next, TensorId(), next_m, next_v},
                        .kwargs = more}));
  }
  builder.set_loss(loss);
  return {ops, std::move(builder).build("test")};
}

const std::vector<std::vector<graph::Affine>> kShapes = {
    {support::n(3), support::n(5)}, {support::n(7)}, {}, {support::n(4), support::n(2)}};

struct Values {
  // Of each op: parameter, gradient, both moments, the number of the step, the flag, and the rate.
  std::vector<std::vector<at::Tensor>> of_op;
  std::vector<at::Tensor> flat() const {
    std::vector<at::Tensor> all;
    for (const auto& operands : of_op) all.insert(all.end(), operands.begin(), operands.end());
    return all;
  }
};

Values values_for(const AdamGraph& adam, at::ScalarType dtype, bool leaves_out, double flag_value) {
  at::manual_seed(5);
  Values values;
  const at::Tensor lr = at::full({}, 0.02, at::kDouble), step = at::full({}, 3.0, at::kDouble);
  for (OpId op : adam.ops) {
    std::vector<at::Tensor> operands;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto sizes = sizes_at(adam.graph.shape(adam.graph.inputs(op)[i]), 1);
      at::Tensor value = at::randn(sizes, dtype);
      // A gradient that lies otherwise in memory than its parameter.
      if (i == 1 && value.dim() == 2) value = value.t().contiguous().t();
      operands.push_back(i == 3 ? value.abs() : value);
    }
    operands.push_back(step);
    if (leaves_out) operands.push_back(at::full({}, flag_value, dtype));
    operands.push_back(lr);
    values.of_op.push_back(std::move(operands));
  }
  return values;
}

// Adam by its formulas (Loshchilov and Hutter, 2019), at step 3.
std::vector<at::Tensor> by_formula(const std::vector<at::Tensor>& x) {
  const at::Tensor decayed = x[0] * (1 - 0.02 * 0.1);
  const at::Tensor m = 0.9 * x[2] + 0.1 * x[1], v = 0.99 * x[3] + (1 - 0.99) * x[1] * x[1];
  const double m_part = 1 - std::pow(0.9, 3), v_part = 1 - std::pow(0.99, 3);
  return {decayed - 0.02 * (m / m_part) / ((v / v_part).sqrt() + 1e-8), m, v};
}

class FusedUpdateTest : public testing::TestWithParam<Floats> {
 protected:
  at::ScalarType dtype() const { return scalar_type(graph::DType::kFloat32, GetParam()); }
  ExecuteOptions options() const { return {.floats = GetParam()}; }
  double bound() const { return GetParam() == Floats::kDouble ? 1e-12 : 1e-5; }
};

TEST_P(FusedUpdateTest, OneCallServesAll) {
  const AdamGraph adam = adam_graph(kShapes, false);
  const Values values = values_for(adam, dtype(), false, 0);
  const FusedUpdate update(adam.graph, adam.ops, {1, 1}, options());
  const std::vector<at::Tensor> operands = values.flat();
  const auto results = update.run(operands, std::vector<bool>(operands.size(), false));
  ASSERT_EQ(results.size(), 4 * adam.ops.size());
  for (std::size_t i = 0; i < adam.ops.size(); ++i) {
    const auto alone = execute(adam.graph, adam.ops[i], values.of_op[i], {1, 1}, options());
    const auto exact = by_formula(values.of_op[i]);
    EXPECT_FALSE(results[4 * i + 1].defined());
    for (std::size_t j : {0, 2, 3}) {
      const at::Tensor& expected = exact[j == 0 ? 0 : j - 1];
      EXPECT_TRUE(at::allclose(results[4 * i + j], expected, bound(), bound())) << i << ' ' << j;
      EXPECT_TRUE(at::equal(results[4 * i + j], alone[j])) << i << ' ' << j;
    }
  }
}

// Kernels of GPUs read the count of steps and the rate in single precision: a kernel for each
// parameter that makes them so takes longer than the update of a small one.
TEST(FusedUpdate, MakesNumbersSingleOnceForAll) {
  const AdamGraph adam = adam_graph(kShapes, false);
  const Values values = values_for(adam, at::kFloat, false, 0);
  ExecuteOptions on_gpu;
  on_gpu.device = at::Device(at::kCUDA, 0);
  const FusedUpdate update(adam.graph, adam.ops, {1, 1}, on_gpu);
  const std::vector<at::Tensor> operands = values.flat();
  static int made;
  made = 0;
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) {
                                   if (std::string(call.name()) == "aten::_to_copy") ++made;
                                   return std::unique_ptr<at::ObserverContext>();
                                 }).scopes({at::RecordScope::FUNCTION}));
  const auto results = update.run(operands, std::vector<bool>(operands.size(), false));
  at::removeCallback(handle);
  EXPECT_EQ(made, 2);
  for (std::size_t i = 0; i < adam.ops.size(); ++i) {
    EXPECT_TRUE(at::allclose(results[4 * i], by_formula(values.of_op[i])[0], 1e-5, 1e-5)) << i;
  }
}

TEST_P(FusedUpdateTest, WhatIsGivenAwayIsWrittenOver) {
  const AdamGraph adam = adam_graph(kShapes, false);
  const Values values = values_for(adam, dtype(), false, 0);
  const std::vector<at::Tensor> operands = values.flat();
  std::vector<at::Tensor> before;
  for (const at::Tensor& operand : operands) before.push_back(operand.clone());
  const FusedUpdate update(adam.graph, adam.ops, {1, 1}, options());
  // Of the first op the parameter and the second moment.
  std::vector<bool> given_away(operands.size(), false);
  given_away[0] = given_away[3] = true;
  const auto results = update.run(operands, given_away);
  EXPECT_TRUE(results[0].is_same(operands[0]));
  EXPECT_TRUE(results[3].is_same(operands[3]));
  EXPECT_FALSE(results[2].is_same(operands[2]));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    EXPECT_EQ(at::equal(operands[i], before[i]), !given_away[i]) << i;
  }
}

TEST_P(FusedUpdateTest, AStepThatIsLeftOutChangesNothing) {
  const AdamGraph adam = adam_graph(kShapes, true);
  for (double left_out : {0.0, 1.0}) {
    const Values values = values_for(adam, dtype(), true, left_out);
    const std::vector<at::Tensor> operands = values.flat();
    const FusedUpdate update(adam.graph, adam.ops, {1, 1}, options());
    const auto results = update.run(operands, std::vector<bool>(operands.size(), false));
    for (std::size_t i = 0; i < adam.ops.size(); ++i) {
      EXPECT_EQ(at::equal(results[4 * i], values.of_op[i][0]), left_out == 1);
      EXPECT_EQ(at::equal(results[4 * i + 2], values.of_op[i][2]), left_out == 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, FusedUpdateTest, testing::Values(Floats::kOwn, Floats::kDouble));

// The kernels go through memory by the sizes of the first list.
TEST(FusedUpdate, RefusesWhatDoesNotFit) {
  const AdamGraph adam = adam_graph({{support::n(6)}}, false);
  Values values = values_for(adam, at::kFloat, false, 0);
  const auto message = [&](std::size_t operand, const at::Tensor& instead) -> std::string {
    std::vector<at::Tensor> operands = values.of_op[0];
    operands[operand] = instead;
    try {
      execute(adam.graph, adam.ops[0], operands, {1, 1}, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(1, at::zeros({5})),
            "op 'p0/adamw': 'grads' is not of the sizes and dtype of what it updates");
  EXPECT_EQ(message(3, at::zeros({6}, at::kDouble)),
            "op 'p0/adamw': 'exp_avg_sqs' is not of the sizes and dtype of what it updates");
  EXPECT_EQ(message(4, at::zeros({2})),
            "op 'p0/adamw': 'state_steps' has 2 elements; it is one number");
  EXPECT_EQ(message(5, at::zeros({0})), "op 'p0/adamw': 'lr' has 0 elements; it is one number");
}

TEST(FusedUpdate, RefusesListsThatAreMissing) {
  graph::ModelGraph graph = support::fused_graph({0});
  for (OpId op : graph.op_ids()) {
    if (graph.type_name(op) != "aten._fused_sgd.tensor_lr") continue;
    OperatorCall call(graph, op, {1, 1}, {});
    torch::jit::Stack stack = call.bind(
        std::vector<at::Tensor>{at::zeros({1000}), at::zeros({1000}), at::zeros({}, at::kDouble)});
    stack[4] = 0.9;  // momentum, without a buffer of it
    try {
      fit_lists("sgd", call.schema(), stack, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "op 'sgd': 'momentum_buffer_list' has 0 tensors; there must be 1");
    }
  }
}

}  // namespace
}  // namespace heterog::runtime
