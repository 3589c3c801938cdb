// Builds small graphs for tests.
#include "support/graphs.h"

#include <fmt/format.h>

namespace heterog::support {

using graph::DType;
using graph::float_value;
using graph::int_value;
using graph::list_value;
using graph::Phase;
using graph::size_value;
using graph::tensor_value;
using graph::TensorRole;
using graph::Value;

TensorId GraphMaker::given(const std::string& name, Shape shape, TensorRole role) {
  return builder_.add_tensor({.name = name, .role = role, .shape = std::move(shape)});
}

TensorId GraphMaker::input(const std::string& name, Shape shape, DType dtype) {
  return builder_.add_tensor(
      {.name = name, .role = TensorRole::kInput, .dtype = dtype, .shape = std::move(shape)});
}

TensorId GraphMaker::parameter(const std::string& name, Shape shape) {
  return given(name, std::move(shape), TensorRole::kParameter);
}

TensorId GraphMaker::buffer(const std::string& name, Shape shape) {
  return given(name, std::move(shape), TensorRole::kBuffer);
}

TensorId GraphMaker::state(const std::string& name, Shape shape, TensorId of) {
  return builder_.add_tensor(
      {.name = name, .role = TensorRole::kOptimizerState, .shape = std::move(shape), .of = of});
}

TensorId GraphMaker::op(const std::string& type, std::vector<Value> args, Shape shape,
                        const OpOptions& options) {
  const auto first = type.find('.') + 1;  // "mm" of "aten.mm.default"
  const std::string base = type.substr(first, type.find('.', first) - first);
  const int count = names_[base]++;
  const std::string name = count == 0 ? base : fmt::format("{}_{}", base, count);
  const TensorId output = builder_.add_tensor({.name = name,
                                               .role = options.role,
                                               .dtype = options.dtype,
                                               .shape = std::move(shape),
                                               .of = options.of,
                                               .replaces = options.replaces});
  makers_[output] = builder_.add_op({.name = name,
                                     .type = type,
                                     .phase = options.phase,
                                     .args = std::move(args),
                                     .outputs = {output},
                                     .forward = options.forward,
                                     .scope = options.scope});
  return output;
}

namespace {

// 4·B, the number of elements that the loss averages over.
Value loss_elements() {
  Value value;
  value.kind = Value::Kind::kScalar;
  value.number = 4;
  return value;
}

struct Layer {
  std::string scope;
  TensorId weight, bias, input, output;
  std::int64_t in, out;
};

Layer add_linear(GraphMaker& maker, Layer layer) {
  const TensorId transposed = maker.op("aten.t.default", {tensor_value(layer.weight)},
                                       {n(layer.in), n(layer.out)}, {.scope = layer.scope});
  layer.output =
      maker.op("aten.addmm.default",
               {tensor_value(layer.bias), tensor_value(layer.input), tensor_value(transposed)},
               {kB, n(layer.out)}, {.scope = layer.scope});
  return layer;
}

// The gradients of weight and bias, from that of the output.
void add_gradients(GraphMaker& maker, const Layer& layer, TensorId gradient,
                   std::vector<std::pair<TensorId, TensorId>>& gradients) {
  OpOptions backward{.phase = Phase::kBackward, .forward = maker.maker(layer.output)};
  OpOptions final = backward;
  final.role = TensorRole::kGradient;
  final.of = layer.weight;
  const TensorId transposed =
      maker.op("aten.t.default", {tensor_value(gradient)}, {n(layer.out), kB}, backward);
  const TensorId weight =
      maker.op("aten.mm.default", {tensor_value(transposed), tensor_value(layer.input)},
               {n(layer.out), n(layer.in)}, final);
  const Value keep_dim{.kind = Value::Kind::kBool, .integer = {0, 1}};
  const TensorId sum = maker.op("aten.sum.dim_IntList",
                                {tensor_value(gradient), list_value({int_value(0)}), keep_dim},
                                {n(1), n(layer.out)}, backward);
  final.of = layer.bias;
  const TensorId bias =
      maker.op("aten.view.default", {tensor_value(sum), list_value({int_value(layer.out)})},
               {n(layer.out)}, final);
  gradients.emplace_back(layer.weight, weight);
  gradients.emplace_back(layer.bias, bias);
}

}  // namespace

graph::ModelGraph tiny_mlp_graph() {
  GraphMaker maker("tiny-mlp");
  const TensorId x = maker.input("x", {kB, n(8)});
  const TensorId target = maker.input("target", {kB, n(4)});
  const TensorId lr = maker.input("lr", {});
  Layer first{.scope = "first", .input = x, .in = 8, .out = 16};
  first.weight = maker.parameter("first.weight", {n(16), n(8)});
  first.bias = maker.parameter("first.bias", {n(16)});
  Layer second{.scope = "second", .in = 16, .out = 4};
  second.weight = maker.parameter("second.weight", {n(4), n(16)});
  second.bias = maker.parameter("second.bias", {n(4)});

  first = add_linear(maker, first);
  const TensorId hidden = maker.op("aten.relu.default", {tensor_value(first.output)}, {kB, n(16)});
  second.input = hidden;
  second = add_linear(maker, second);
  const TensorId error =
      maker.op("aten.sub.Tensor", {tensor_value(second.output), tensor_value(target)}, {kB, n(4)});
  const TensorId square =
      maker.op("aten.mul.Tensor", {tensor_value(error), tensor_value(error)}, {kB, n(4)});
  const TensorId total = maker.op("aten.sum.default", {tensor_value(square)}, {});
  const TensorId loss = maker.op("aten.div.Scalar", {tensor_value(total), loss_elements()}, {},
                                 {.role = TensorRole::kOutput});
  maker.loss(loss);

  const auto backward_of = [&](TensorId tensor) {
    return OpOptions{.phase = Phase::kBackward, .forward = maker.maker(tensor)};
  };
  const TensorId ones =
      maker.op("aten.ones_like.default", {tensor_value(loss)}, {}, {.phase = Phase::kBackward});
  const TensorId scaled =
      maker.op("aten.div.Scalar", {tensor_value(ones), loss_elements()}, {}, backward_of(loss));
  const TensorId spread = maker.op(
      "aten.expand.default", {tensor_value(scaled), list_value({size_value(1, 0), int_value(4)})},
      {kB, n(4)}, backward_of(total));
  const TensorId twice = maker.op("aten.mul.Scalar", {tensor_value(error), int_value(2)},
                                  {kB, n(4)}, backward_of(square));
  const TensorId at_output =
      maker.op("aten.mul.Tensor", {tensor_value(spread), tensor_value(twice)}, {kB, n(4)},
               backward_of(square));
  std::vector<std::pair<TensorId, TensorId>> gradients;
  const TensorId at_hidden =
      maker.op("aten.mm.default", {tensor_value(at_output), tensor_value(second.weight)},
               {kB, n(16)}, backward_of(second.output));
  add_gradients(maker, second, at_output, gradients);
  const TensorId at_first = maker.op("aten.threshold_backward.default",
                                     {tensor_value(at_hidden), tensor_value(hidden), int_value(0)},
                                     {kB, n(16)}, backward_of(hidden));
  add_gradients(maker, first, at_first, gradients);

  for (const auto& [parameter, gradient] : gradients) {
    const bool is_first = parameter == first.weight || parameter == first.bias;
    const bool is_bias = parameter == first.bias || parameter == second.bias;
    const Layer& layer = is_first ? first : second;
    const GraphMaker::Shape shape =
        is_bias ? GraphMaker::Shape{n(layer.out)} : GraphMaker::Shape{n(layer.out), n(layer.in)};
    const TensorId step = maker.op("aten.mul.Tensor", {tensor_value(gradient), tensor_value(lr)},
                                   shape, {.phase = Phase::kUpdate});
    maker.op("aten.sub.Tensor", {tensor_value(parameter), tensor_value(step)}, shape,
             {.phase = Phase::kUpdate, .role = TensorRole::kOutput, .replaces = parameter});
  }
  return std::move(maker).build();
}

graph::ModelGraph lookup_graph(const LookupTable& of) {
  GraphMaker maker("lookups");
  const TensorId table = maker.parameter("table", {n(of.rows), n(of.width)});
  const Value no{.kind = graph::Value::Kind::kBool, .integer = {0, 0}};
  std::vector<TensorId> losses, gradients;
  for (int i = 0; i < (of.twice ? 2 : 1); ++i) {
    const TensorId words = maker.input(fmt::format("words{}", i), {kB, n(of.words)}, DType::kInt64);
    const GraphMaker::Shape shape = {kB, n(of.words), n(of.width)};
    const TensorId g = maker.input(fmt::format("g{}", i), shape, of.gradient);
    const TensorId found =
        maker.op("aten.embedding.default", {tensor_value(table), tensor_value(words)}, shape);
    const TensorId product =
        maker.op("aten.mul.Tensor", {tensor_value(found), tensor_value(g)}, shape);
    losses.push_back(maker.op("aten.sum.default", {tensor_value(product)}, {},
                              {.role = of.twice ? TensorRole::kActivation : TensorRole::kOutput}));
    OpOptions backward{
        .phase = Phase::kBackward, .forward = maker.maker(found), .dtype = of.gradient};
    if (!of.twice) backward.role = TensorRole::kGradient, backward.of = table;
    gradients.push_back(
        maker.op("aten.embedding_dense_backward.default",
                 {tensor_value(g), tensor_value(words), int_value(of.rows), int_value(-1), no},
                 {n(of.rows), n(of.width)}, backward));
  }
  TensorId loss = losses[0], gradient = gradients[0];
  if (of.twice) {
    loss = maker.op("aten.add.Tensor", {tensor_value(losses[0]), tensor_value(losses[1])}, {},
                    {.role = TensorRole::kOutput});
    gradient = maker.op("aten.add.Tensor", {tensor_value(gradients[0]), tensor_value(gradients[1])},
                        {n(of.rows), n(of.width)},
                        {.phase = Phase::kBackward,
                         .role = TensorRole::kGradient,
                         .dtype = of.gradient,
                         .of = table});
  }
  maker.loss(loss);
  const TensorId change =
      maker.op("aten.mul.Scalar", {tensor_value(gradient), float_value(0.1)},
               {n(of.rows), n(of.width)}, {.phase = Phase::kUpdate, .dtype = of.gradient});
  maker.op("aten.sub.Tensor", {tensor_value(table), tensor_value(change)},
           {n(of.rows), n(of.width)},
           {.phase = Phase::kUpdate, .role = TensorRole::kOutput, .replaces = table});
  return std::move(maker).build();
}

}  // namespace heterog::support
