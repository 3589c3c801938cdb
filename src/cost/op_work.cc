// What each ATen operator computes and moves, from its shapes and arguments.
#include <algorithm>

#include "cost/cost_model.h"
#include "cost/op_arguments.h"
#include "cost/weights_at_once.h"

namespace heterog::cost {
namespace {

using cluster::OpClass;
using graph::Affine;
using graph::ModelGraph;
using graph::Value;

Bytes inputs_bytes(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const std::span<const TensorId> inputs = graph.inputs(op);
  Bytes bytes = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // A tensor that stands twice among the operands is read once.
    const auto before = inputs.first(i);
    if (std::find(before.begin(), before.end(), inputs[i]) != before.end()) continue;
    bytes += read_bytes(graph, inputs[i], samples);
  }
  return bytes;
}

Bytes outputs_bytes(const ModelGraph& graph, OpId op, std::int64_t samples) {
  Bytes bytes = 0;
  for (TensorId output : graph.outputs(op)) {
    if (output.valid()) bytes += graph.bytes(output, samples);
  }
  return bytes;
}

// One pass: each element of the output (of the input, if transposed) meets the part of the weight
// that one channel has.
double convolution_flop(const ModelGraph& graph, const Convolution& conv, std::int64_t samples) {
  if (!conv.input.valid() || !conv.weight.valid() || !conv.output.valid()) return 0;
  const std::span<const Affine> weight = graph.shape(conv.weight);
  const std::int64_t channels = weight.empty() ? 1 : weight[0].at(samples);
  if (channels <= 0) return 0;
  const double taps = static_cast<double>(graph.elements(conv.weight, samples)) / channels;
  const TensorId swept = conv.transposed ? conv.input : conv.output;
  return 2 * static_cast<double>(graph.elements(swept, samples)) * taps;
}

OpClass convolution_class(const ModelGraph& graph, const Convolution& conv) {
  if (!conv.weight.valid()) return OpClass::kConvolution;
  const std::span<const Affine> weight = graph.shape(conv.weight);
  if (conv.groups > 1) {
    const bool one_channel = weight.size() > 1 && weight[1] == Affine{0, 1};
    return one_channel ? OpClass::kDepthwiseConvolution : OpClass::kConvolution;
  }
  const bool three = weight.size() == 4 && weight[2] == Affine{0, 3} && weight[3] == Affine{0, 3};
  const bool single = graph.tensor(conv.weight).dtype == graph::DType::kFloat32;
  return three && single && !conv.transposed && all_ones(conv.stride) && all_ones(conv.dilation)
             ? OpClass::kConvolution3x3
             : OpClass::kConvolution;
}

OpWork convolution_backward_work(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const Convolution conv = convolution(graph, op, Family::kConvolutionBackward);
  OpWork work;
  work.op_class = convolution_class(graph, conv);
  const std::array<bool, 3> mask = gradient_mask(graph, op);
  const Bytes gradient = read_bytes(graph, conv.output, samples);
  const Bytes input = read_bytes(graph, conv.input, samples);
  const Bytes weight = read_bytes(graph, conv.weight, samples);
  const double pass = convolution_flop(graph, conv, samples);
  if (mask[0]) {
    work.flop += pass;
    work.bytes += gradient + weight;
  }
  if (mask[1]) {
    work.flop += pass;
    work.bytes += gradient + input;
  }
  if (mask[2]) work.bytes += gradient;
  work.bytes += outputs_bytes(graph, op, samples);
  return work;
}

// 2 · elements of the result · the dimension that is summed over (the last of the left operand).
double matmul_flop(const ModelGraph& graph, OpId op, TensorId left, std::int64_t samples) {
  const TensorId result = first_output(graph, op);
  if (!left.valid() || !result.valid() || graph.shape(left).empty()) return 0;
  const double inner = static_cast<double>(graph.shape(left).back().at(samples));
  return 2 * static_cast<double>(graph.elements(result, samples)) * inner;
}

// A product of queries and keys, [N·H, L, E] · [N·H, E, S], as often as the op makes one of that
// size: forward QKᵀ and PV, backward QKᵀ again and the gradients of both products' operands. Under
// a causal mask half of the scores are left out.
double attention_flop(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const AttentionSize size = attention_size(graph, op, samples);
  return 2 * size.products * size.heads * size.queries * size.keys * size.width;
}

graph::DType operand_dtype(const ModelGraph& graph, OpId op) {
  for (TensorId input : graph.inputs(op)) {
    const graph::DType dtype = graph.tensor(input).dtype;
    if (dtype <= graph::DType::kFloat64) return dtype;  // the first that is no integer
  }
  return graph::DType::kFloat32;
}

OpWork work_of(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const Family kind = graph.facts(op).family;
  const std::span<const Value> args = graph.args(op);
  const Bytes written = outputs_bytes(graph, op, samples);
  OpWork work;
  const auto traffic = [&](OpClass op_class, Bytes bytes) {
    work.op_class = op_class;
    work.bytes = bytes;
  };
  const auto operand = [&](std::size_t i) {
    return read_bytes(graph, tensor_arg(args, i), samples);
  };
  switch (kind) {
    case Family::kElementwise:
      traffic(OpClass::kElementwise, inputs_bytes(graph, op, samples) + written);
      break;
    case Family::kReduction:
      traffic(OpClass::kReduction, inputs_bytes(graph, op, samples) + written);
      break;
    case Family::kSoftmax:
      traffic(OpClass::kSoftmax, inputs_bytes(graph, op, samples) + written);
      break;
    case Family::kSoftmaxBackward:
      traffic(OpClass::kSoftmax, 2 * (inputs_bytes(graph, op, samples) + written));
      break;
    case Family::kPooling:
      traffic(OpClass::kPooling, inputs_bytes(graph, op, samples) + written);
      break;
    case Family::kPoolingBackward:
      traffic(OpClass::kPooling, inputs_bytes(graph, op, samples) - operand(1) + written);
      break;
    case Family::kCopy:
      traffic(OpClass::kCopy, inputs_bytes(graph, op, samples) + written);
      break;
    case Family::kFill:
      traffic(OpClass::kCopy, written);
      break;
    case Family::kEmpty:
      traffic(OpClass::kCopy, 0);
      break;
    case Family::kMatMul:
    case Family::kMatMulAdd:
      // A packed weight is written unpacked, and read again.
      traffic(OpClass::kMatMul,
              inputs_bytes(graph, op, samples) + 2 * unpacked_bytes(graph, op, samples) + written);
      work.flop =
          matmul_flop(graph, op, tensor_arg(args, kind == Family::kMatMulAdd ? 1 : 0), samples);
      break;
    case Family::kAttention:
    case Family::kAttentionBackward:
      traffic(OpClass::kMatMul, inputs_bytes(graph, op, samples) + written);
      work.flop = attention_flop(graph, op, samples);
      break;
    case Family::kConvolution: {
      const Convolution conv = convolution(graph, op, kind);
      traffic(convolution_class(graph, conv), inputs_bytes(graph, op, samples) + written);
      work.flop = convolution_flop(graph, conv, samples);
      break;
    }
    case Family::kConvolutionBackward:
      work = convolution_backward_work(graph, op, samples);
      break;
    case Family::kBatchNorm:
      traffic(OpClass::kNormalization, inputs_bytes(graph, op, samples) + operand(0) + written);
      break;
    case Family::kBatchNormBackward:
    case Family::kLayerNormBackward:
      traffic(OpClass::kNormalization,
              inputs_bytes(graph, op, samples) + operand(0) + operand(1) + written);
      break;
    case Family::kLayerNorm:
      traffic(OpClass::kNormalization, inputs_bytes(graph, op, samples) + written);
      break;
    case Family::kGather:
      // The indices are the integer operands; the rows are as large as the result.
      traffic(OpClass::kEmbedding, inputs_bytes(graph, op, samples) - operand(0) + 2 * written);
      break;
    case Family::kScatterAdd:
      traffic(OpClass::kEmbedding, inputs_bytes(graph, op, samples) + 2 * operand(0) + written);
      break;
    case Family::kIndexedLoss:
      // One element of the same size as the index, or less, a row.
      traffic(OpClass::kReduction, 2 * operand(1) + written);
      break;
    case Family::kIndexedLossBackward:
      traffic(OpClass::kReduction, 2 * operand(2) + written);
      break;
  }
  return work;
}

}  // namespace

OpWork op_work(const ModelGraph& graph, OpId op, std::int64_t samples) {
  OpWork work = work_of(graph, op, samples);
  work.dtype = operand_dtype(graph, op);
  if (graph.op(op).phase == graph::Phase::kUpdate &&
      (work.op_class == OpClass::kElementwise || work.op_class == OpClass::kCopy)) {
    work.op_class = OpClass::kOptimizer;
  }
  return work;
}

Bytes weights_bytes(const ModelGraph& graph, OpId op, std::int64_t samples,
                    const cluster::DeviceType& type) {
  const Family kind = graph.facts(op).family;
  if (kind == Family::kMatMul) return unpacked_bytes(graph, op, samples);
  if (kind != Family::kAttention && kind != Family::kAttentionBackward) return 0;
  const AttentionSize size = attention_size(graph, op, samples);
  if (!size.drops || samples < 1) return 0;
  WeightsAtOnce held = kind == Family::kAttention ? kForwardWrittenOut : kBackwardWrittenOut;
  if (!type.name.starts_with("CPU")) {
    held = weights_at_once_on_gpu(graph::element_bytes(operand_dtype(graph, op)),
                                  kind == Family::kAttentionBackward);
  }
  const auto weights = static_cast<std::int64_t>(size.heads_of_sample * size.queries * size.keys);
  const auto at_once = std::min(static_cast<std::int64_t>(size.samples), held.samples(weights));
  return at_once * weights * held.of_weight;
}

Bytes unfold_bytes(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const Family kind = graph.facts(op).family;
  if (kind != Family::kConvolution && kind != Family::kConvolutionBackward) return 0;
  const Convolution conv = convolution(graph, op, kind);
  if (!conv.input.valid() || !conv.weight.valid() || !conv.output.valid()) return 0;
  const std::span<const Affine> weight = graph.shape(conv.weight);
  std::int64_t taps = 1;
  for (std::size_t i = 2; i < weight.size(); ++i) taps *= weight[i].at(samples);
  if (taps == 1 && all_ones(conv.stride)) return 0;
  // Positions of the kernel × values that each of them covers, over all input channels.
  const TensorId swept = conv.transposed ? conv.input : conv.output;
  const TensorId other = conv.transposed ? conv.output : conv.input;
  const std::span<const Affine> swept_shape = graph.shape(swept);
  const std::span<const Affine> other_shape = graph.shape(other);
  if (swept_shape.size() < 2 || other_shape.size() < 2) return 0;
  const std::int64_t channels = std::max<std::int64_t>(1, swept_shape[1].at(samples));
  const std::int64_t positions = graph.elements(swept, samples) / channels;
  return positions * other_shape[1].at(samples) * taps *
         graph::element_bytes(graph.tensor(conv.input).dtype);
}

}  // namespace heterog::cost
