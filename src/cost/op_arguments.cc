// Finds what an operator multiplies, and how.
#include "cost/op_arguments.h"

#include <algorithm>

namespace heterog::cost {

using graph::Affine;
using graph::ModelGraph;
using graph::Value;

TensorId tensor_arg(std::span<const Value> args, std::size_t index) {
  return index < args.size() && args[index].kind == Value::Kind::kTensor ? args[index].tensor
                                                                         : TensorId();
}

TensorId first_output(const ModelGraph& graph, OpId op) {
  const std::span<const TensorId> outputs = graph.outputs(op);
  return outputs.empty() ? TensorId() : outputs[0];
}

Bytes read_bytes(const ModelGraph& graph, TensorId id, std::int64_t samples) {
  if (!id.valid()) return 0;
  const TensorId root = graph.root(id);
  const Bytes own = graph.bytes(id, samples);
  return root == id ? own : std::min(own, graph.bytes(root, samples));
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
// convolution_backward(grad, input, weight, bias_sizes, stride, …, groups, output_mask).
Convolution convolution(const ModelGraph& graph, OpId op, Family kind) {
  const std::span<const Value> args = graph.args(op);
  const std::size_t shift = kind == Family::kConvolutionBackward ? 1 : 0;
  Convolution conv;
  conv.input = tensor_arg(args, shift);
  conv.weight = tensor_arg(args, shift + 1);
  conv.output = shift ? tensor_arg(args, 0) : first_output(graph, op);
  if (args.size() > 3 + shift) conv.stride = &args[3 + shift];
  if (args.size() > 5 + shift) conv.dilation = &args[5 + shift];
  if (args.size() > 6 + shift) conv.transposed = args[6 + shift].integer.c != 0;
  if (args.size() > 8 + shift) conv.groups = std::max<std::int64_t>(1, args[8 + shift].integer.c);
  return conv;
}

std::array<bool, 3> gradient_mask(const ModelGraph& graph, OpId op) {
  const std::span<const Value> args = graph.args(op);
  std::array<bool, 3> mask{true, true, false};
  if (args.size() > 10 && args[10].items.size() == 3) {
    for (std::size_t i = 0; i < 3; ++i) mask[i] = args[10].items[i].integer.c != 0;
  }
  return mask;
}

bool all_ones(const Value* steps) {
  return !steps || std::all_of(steps->items.begin(), steps->items.end(), [](const Value& step) {
    return step.integer == Affine{0, 1};
  });
}

}  // namespace heterog::cost
