// The table of operators, and the arguments of the ones that multiply.
#include "cost/op_family.h"

#include <algorithm>
#include <unordered_map>

namespace heterog::cost {

using graph::Affine;
using graph::ModelGraph;
using graph::Value;

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
      {"_safe_softmax", Family::kSoftmax},
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
