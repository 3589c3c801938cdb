// What each ATen operator computes and moves, from its shapes and arguments.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "cost/cost_model.h"

namespace heterog::cost {
namespace {

using cluster::OpClass;
using graph::Affine;
using graph::ModelGraph;
using graph::Value;

// Operators whose work is computed alike.
enum class Family : std::uint8_t {
  kElementwise,  // reads its operands, writes its results: also what is not listed below
  kReduction,    // the same traffic
  kSoftmax,      // the same traffic
  kPooling,      // the same traffic
  kCopy,         // the same traffic
  kFill,         // writes its result, reads nothing of its operands
  kEmpty,        // touches no memory
  kMatMul,       // operands 0 and 1
  kMatMulAdd,    // operands 1 and 2, operand 0 is added
  kConvolution,
  kConvolutionBackward,
  kBatchNorm,            // reads its input twice: statistics, then the values
  kBatchNormBackward,    // reads gradient and input twice
  kLayerNorm,            // a row stays on the chip between statistics and values
  kLayerNormBackward,    // one pass for the input's gradient, one for those of scale and shift
  kGather,               // reads the rows that it picks, not the table
  kScatterAdd,           // clears the whole table, then adds rows
  kIndexedLoss,          // reads one element a row
  kIndexedLossBackward,  // clears the result, writes one element a row
  kPoolingBackward,      // its forward's input, operand 1, gives a shape and no values
};

Family family(std::string_view type) {
  static const std::unordered_map<std::string_view, Family> kFamilies = {
      {"mm", Family::kMatMul},
      {"bmm", Family::kMatMul},
      {"mv", Family::kMatMul},
      {"dot", Family::kMatMul},
      {"addmm", Family::kMatMulAdd},
      {"baddbmm", Family::kMatMulAdd},
      {"addmv", Family::kMatMulAdd},
      {"convolution", Family::kConvolution},
      {"convolution_backward", Family::kConvolutionBackward},
      {"native_batch_norm", Family::kBatchNorm},
      {"_native_batch_norm_legit", Family::kBatchNorm},
      {"_native_batch_norm_legit_functional", Family::kBatchNorm},
      {"cudnn_batch_norm", Family::kBatchNorm},
      {"native_group_norm", Family::kBatchNorm},
      {"var_mean", Family::kReduction},
      {"native_batch_norm_backward", Family::kBatchNormBackward},
      {"cudnn_batch_norm_backward", Family::kBatchNormBackward},
      {"native_group_norm_backward", Family::kBatchNormBackward},
      {"native_layer_norm", Family::kLayerNorm},
      {"native_layer_norm_backward", Family::kLayerNormBackward},
      {"_softmax", Family::kSoftmax},
      {"_log_softmax", Family::kSoftmax},
      {"_softmax_backward_data", Family::kSoftmax},
      {"_log_softmax_backward_data", Family::kSoftmax},
      {"logsumexp", Family::kSoftmax},
      {"max_pool2d_with_indices", Family::kPooling},
      {"avg_pool2d", Family::kPooling},
      {"_adaptive_avg_pool2d", Family::kPooling},
      {"max_pool2d_with_indices_backward", Family::kPoolingBackward},
      {"avg_pool2d_backward", Family::kPoolingBackward},
      {"_adaptive_avg_pool2d_backward", Family::kPoolingBackward},
      {"sum", Family::kReduction},
      {"mean", Family::kReduction},
      {"amax", Family::kReduction},
      {"amin", Family::kReduction},
      {"max", Family::kReduction},
      {"min", Family::kReduction},
      {"argmax", Family::kReduction},
      {"any", Family::kReduction},
      {"all", Family::kReduction},
      {"prod", Family::kReduction},
      {"var", Family::kReduction},
      {"std", Family::kReduction},
      {"norm", Family::kReduction},
      {"linalg_vector_norm", Family::kReduction},
      {"cumsum", Family::kReduction},
      {"embedding", Family::kGather},
      {"index", Family::kGather},
      {"index_select", Family::kGather},
      {"gather", Family::kGather},
      {"embedding_dense_backward", Family::kScatterAdd},
      {"nll_loss_forward", Family::kIndexedLoss},
      {"nll_loss2d_forward", Family::kIndexedLoss},
      {"nll_loss_backward", Family::kIndexedLossBackward},
      {"nll_loss2d_backward", Family::kIndexedLossBackward},
      {"clone", Family::kCopy},
      {"copy", Family::kCopy},
      {"_to_copy", Family::kCopy},
      {"cat", Family::kCopy},
      {"stack", Family::kCopy},
      {"constant_pad_nd", Family::kCopy},
      {"repeat", Family::kCopy},
      {"flip", Family::kCopy},
      {"roll", Family::kCopy},
      {"slice_backward", Family::kCopy},
      {"select_backward", Family::kCopy},
      {"slice_scatter", Family::kCopy},
      {"select_scatter", Family::kCopy},
      {"_unsafe_view", Family::kEmpty},
      {"empty", Family::kEmpty},
      {"empty_like", Family::kEmpty},
      {"new_empty", Family::kEmpty},
      {"empty_strided", Family::kEmpty},
      {"new_empty_strided", Family::kEmpty},
      {"zeros", Family::kFill},
      {"ones", Family::kFill},
      {"full", Family::kFill},
      {"arange", Family::kFill},
      {"scalar_tensor", Family::kFill},
      {"zeros_like", Family::kFill},
      {"ones_like", Family::kFill},
      {"full_like", Family::kFill},
      {"new_zeros", Family::kFill},
      {"new_ones", Family::kFill},
      {"new_full", Family::kFill},
  };
  // "aten.mm.default" → "mm".
  if (type.starts_with("aten.")) type.remove_prefix(5);
  type = type.substr(0, type.find('.'));
  const auto found = kFamilies.find(type);
  return found == kFamilies.end() ? Family::kElementwise : found->second;
}

// A tensor argument, invalid where the argument is missing or no tensor.
TensorId tensor_arg(std::span<const Value> args, std::size_t index) {
  return index < args.size() && args[index].kind == Value::Kind::kTensor ? args[index].tensor
                                                                         : TensorId();
}

// Bytes that reading a tensor moves: a view that repeats its base (expand) reads the base.
Bytes read_bytes(const ModelGraph& graph, TensorId id, std::int64_t samples) {
  if (!id.valid()) return 0;
  const TensorId root = graph.root(id);
  const Bytes own = graph.bytes(id, samples);
  return root == id ? own : std::min(own, graph.bytes(root, samples));
}

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

TensorId first_output(const ModelGraph& graph, OpId op) {
  const std::span<const TensorId> outputs = graph.outputs(op);
  return outputs.empty() ? TensorId() : outputs[0];
}

// Arguments that convolution and convolution_backward have in common.
struct Convolution {
  TensorId input, weight, output;  // backward: output is its gradient
  const Value* stride = nullptr;
  const Value* dilation = nullptr;
  bool transposed = false;
  std::int64_t groups = 1;
};

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

bool all_ones(const Value* steps) {
  return !steps || std::all_of(steps->items.begin(), steps->items.end(), [](const Value& step) {
    return step.integer == Affine{0, 1};
  });
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
  const std::span<const Value> args = graph.args(op);
  bool mask[3] = {true, true, false};
  if (args.size() > 10 && args[10].items.size() == 3) {
    for (int i = 0; i < 3; ++i) mask[i] = args[10].items[i].integer.c != 0;
  }
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

graph::DType operand_dtype(const ModelGraph& graph, OpId op) {
  for (TensorId input : graph.inputs(op)) {
    const graph::DType dtype = graph.tensor(input).dtype;
    if (dtype <= graph::DType::kFloat64) return dtype;  // the first that is no integer
  }
  return graph::DType::kFloat32;
}

OpWork work_of(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const Family kind = family(graph.type_name(op));
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
      traffic(OpClass::kMatMul, inputs_bytes(graph, op, samples) + written);
      work.flop =
          matmul_flop(graph, op, tensor_arg(args, kind == Family::kMatMulAdd ? 1 : 0), samples);
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

Bytes unfold_bytes(const ModelGraph& graph, OpId op, std::int64_t samples) {
  const Family kind = family(graph.type_name(op));
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
