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

Bytes unpacked_bytes(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const TensorId left = tensor_arg(graph.args(op), 0), right = tensor_arg(graph.args(op), 1);
  if (graph.facts(op).family != Family::kMatMul || !left.valid() || !right.valid()) return 0;
  if (graph.tensor(right).dtype != graph::DType::kUInt8) return 0;
  return 2 * graph.elements(right, samples) * graph::element_bytes(graph.tensor(left).dtype);
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

// attention(query [N, H, L, E], key, value [N, H, S, E], dropout_p, is_causal);
// its gradient(gradient, query, key, value, result, log_sums, dropout_p, is_causal).
AttentionSize attention_size(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const bool backward = graph.facts(op).family == Family::kAttentionBackward;
  const std::span<const Value> args = graph.args(op);
  const std::size_t first = backward ? 1 : 0, dropout = backward ? 6 : 3;
  const TensorId query = tensor_arg(args, first), key = tensor_arg(args, first + 1);
  AttentionSize size;
  if (!query.valid() || !key.valid()) return size;
  const std::span<const Affine> q = graph.shape(query), k = graph.shape(key);
  if (q.size() != 4 || k.size() != 4) return size;
  const auto at = [&](const Affine& dimension) {
    return std::max(1.0, static_cast<double>(dimension.at(samples)));
  };
  const bool causal = args.size() > dropout + 1 && args[dropout + 1].integer.c != 0;
  size.products = backward ? 5 : 2;
  size.samples = at(q[0]);
  size.heads_of_sample = at(q[1]);
  size.heads = at(q[0]) * at(q[1]) * (causal ? 0.5 : 1.0);
  size.queries = at(q[2]);
  size.keys = at(k[2]);
  size.width = at(q[3]);
  if (args.size() > dropout) {
    size.drops = args[dropout].kind == Value::Kind::kFloat ? args[dropout].number != 0
                                                           : args[dropout].integer.c != 0;
  }
  return size;
}

bool all_ones(const Value* steps) {
  return !steps || std::all_of(steps->items.begin(), steps->items.end(), [](const Value& step) {
    return step.integer == Affine{0, 1};
  });
}

}  // namespace heterog::cost
