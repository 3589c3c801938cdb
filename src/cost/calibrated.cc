// The calibrated cost model: which kernels an operator runs, and what each of them takes.
#include <algorithm>

#include "cost/cost_model.h"
#include "cost/kernel.h"
#include "cost/op_arguments.h"

namespace heterog::cost {
namespace {

using cluster::Calibration;
using cluster::DeviceType;
using cluster::OpClass;
using cluster::ProductKind;
using cluster::TrafficKind;
using graph::Affine;
using graph::ModelGraph;

// [m, k] · [k, n], with leading dimensions as a batch; vectors count as one row or column.
ProductSize matmul_size(const ModelGraph& graph, OpId op, std::size_t left_arg,
                        std::int64_t samples) {
  const std::span<const graph::Value> args = graph.args(op);
  const TensorId left = tensor_arg(args, left_arg), right = tensor_arg(args, left_arg + 1);
  const TensorId result = first_output(graph, op);
  ProductSize size;
  if (!left.valid() || !right.valid() || !result.valid()) return size;
  const std::span<const Affine> a = graph.shape(left), b = graph.shape(right);
  if (a.empty() || b.empty()) return size;
  const auto at = [&](const Affine& dimension) {
    return std::max(1.0, static_cast<double>(dimension.at(samples)));
  };
  if (unpacked_bytes(graph, op, samples) > 0) {  // a list of bytes, whose shape says nothing
    size.k = at(a.back());
    size.n = at(graph.shape(result).back());
    size.m = std::max(1.0, static_cast<double>(graph.elements(result, samples)) / size.n);
    return size;
  }
  size.k = at(a.back());
  size.m = a.size() > 1 ? at(a[a.size() - 2]) : 1;
  size.n = b.size() > 1 ? at(b.back()) : 1;
  size.batch =
      std::max(1.0, static_cast<double>(graph.elements(result, samples)) / (size.m * size.n));
  return size;
}

ConvolutionSize convolution_size(const ModelGraph& graph, const Convolution& conv,
                                 std::int64_t samples) {
  // A transposed convolution is the input gradient of the one whose input it makes.
  const std::span<const Affine> input = graph.shape(conv.transposed ? conv.output : conv.input);
  const std::span<const Affine> output = graph.shape(conv.transposed ? conv.input : conv.output);
  const std::span<const Affine> weight = graph.shape(conv.weight);
  const auto at = [&](std::span<const Affine> shape, std::size_t i) {
    return i < shape.size() ? std::max(1.0, static_cast<double>(shape[i].at(samples))) : 1.0;
  };
  const auto spatial = [&](std::span<const Affine> shape, double& height, double& width) {
    height = shape.size() > 3 ? at(shape, 2) : 1;
    width = 1;
    for (std::size_t i = shape.size() > 3 ? 3 : 2; i < shape.size(); ++i) width *= at(shape, i);
  };
  ConvolutionSize size;
  size.samples = at(input, 0);
  size.groups = static_cast<double>(conv.groups);
  size.channels = at(input, 1);
  size.filters = at(output, 1);
  spatial(input, size.input_height, size.input_width);
  spatial(output, size.output_height, size.output_width);
  for (std::size_t i = 2; i < weight.size(); ++i) size.taps *= at(weight, i);
  const auto strides = conv.stride ? conv.stride->items.size() : 0;
  for (std::size_t i = 0; i + 2 < weight.size() && strides; ++i) {
    // One stride may stand for all dimensions.
    const auto stride = conv.stride->items[std::min(i, strides - 1)].integer.c;
    size.stride_area *= std::max(1.0, static_cast<double>(stride));
  }
  const bool square = weight.size() == 4 && weight[2] == weight[3] && conv.groups == 1;
  if (square && all_ones(conv.stride) && all_ones(conv.dilation) &&
      (weight[2] == Affine{0, 3} || weight[2] == Affine{0, 5})) {
    size.winograd_side = static_cast<int>(weight[2].c);
  }
  return size;
}

TrafficKind traffic_kind(Family kind, OpClass op_class) {
  if (kind == Family::kLayerNorm || kind == Family::kLayerNormBackward) {
    return TrafficKind::kLayerNorm;
  }
  switch (op_class) {
    case OpClass::kReduction:
      return TrafficKind::kReduction;
    case OpClass::kNormalization:
      return kind == Family::kBatchNormBackward ? TrafficKind::kBatchNormBackward
                                                : TrafficKind::kBatchNorm;
    case OpClass::kSoftmax:
      return TrafficKind::kSoftmax;
    case OpClass::kEmbedding:
      return TrafficKind::kEmbedding;
    case OpClass::kCopy:
      return TrafficKind::kCopy;
    case OpClass::kOptimizer:
      return TrafficKind::kOptimizer;
    default:
      return TrafficKind::kElementwise;
  }
}

// Places of all windows of a pool: those of the kernel for every result, of which a backward op
// holds the gradients. Adaptive pools have no kernel size: their windows tile the input.
double pool_visits(const ModelGraph& graph, OpId op, Family kind, std::int64_t samples) {
  const std::span<const graph::Value> args = graph.args(op);
  const bool backward = kind == Family::kPoolingBackward;
  const TensorId input = tensor_arg(args, backward ? 1 : 0);
  const TensorId pooled = backward ? tensor_arg(args, 0) : first_output(graph, op);
  if (!input.valid() || !pooled.valid()) return 0;
  const std::size_t kernel = backward ? 2 : 1;
  if (graph.facts(op).adaptive || kernel >= args.size() || args[kernel].items.empty()) {
    return static_cast<double>(graph.elements(input, samples));
  }
  double places = 1;
  for (const graph::Value& side : args[kernel].items) {
    places *= static_cast<double>(side.integer.at(samples));
  }
  // One side may stand for both dimensions.
  if (args[kernel].items.size() == 1) places *= places;
  return places * static_cast<double>(graph.elements(pooled, samples));
}

// Of a batch or group norm: dimension 1 of its input.
double channels(const ModelGraph& graph, OpId op, Family kind, std::int64_t samples) {
  const TensorId input = tensor_arg(graph.args(op), kind == Family::kBatchNormBackward ? 1 : 0);
  if (!input.valid() || graph.shape(input).size() < 2) return 1;
  return std::max(1.0, static_cast<double>(graph.shape(input)[1].at(samples)));
}

double convolution_seconds(const ModelGraph& graph, OpId op, Family kind, const OpWork& work,
                           std::int64_t samples, const DeviceType& type,
                           const Calibration& calibration) {
  const Convolution conv = convolution(graph, op, kind);
  if (!conv.input.valid() || !conv.weight.valid() || !conv.output.valid()) {
    return traffic_seconds(TrafficKind::kElementwise, work.bytes, type, calibration);
  }
  Product product{.dtype = work.dtype,
                  .shape = convolution_size(graph, conv, samples),
                  .tf32 = graph.tf32().convolutions};
  // The weight is copied as well, but is small beside activations.
  for (TensorId tensor : {conv.input, conv.output}) {
    if (!graph.tensor(tensor).channels_last) {
      product.contiguous_bytes += graph.bytes(tensor, samples);
    }
  }
  const auto pass = [&](ProductKind pass_kind, Bytes bytes) {
    product.kind = pass_kind;
    product.bytes = bytes;
    return product_seconds(product, type, calibration);
  };
  const ProductKind forward =
      conv.transposed ? ProductKind::kConvolutionInputGradient : ProductKind::kConvolutionForward;
  if (kind == Family::kConvolution) return pass(forward, work.bytes);
  const ProductKind to_input =
      conv.transposed ? ProductKind::kConvolutionForward : ProductKind::kConvolutionInputGradient;
  const Bytes input = read_bytes(graph, conv.input, samples);
  const Bytes weight = read_bytes(graph, conv.weight, samples);
  const Bytes gradient = read_bytes(graph, conv.output, samples);
  const std::array<bool, 3> mask = gradient_mask(graph, op);
  double seconds = 0;
  if (mask[0]) seconds += pass(to_input, gradient + weight + input);
  if (mask[1]) seconds += pass(ProductKind::kConvolutionWeightGradient, gradient + input + weight);
  if (mask[2]) seconds += traffic_seconds(TrafficKind::kReduction, gradient, type, calibration);
  return seconds;
}

// Where weights are dropped they are written down, between products in single precision
// (runtime/attention/dropped_attention.cc). Bytes that are moved for each: forward the product, and
// what is used of it, are written and read; backward both again, the gradient of what is used, and
// that of the product, which two products read.
double bytes_of_written_weight(Family kind, graph::DType dtype) {
  const auto operand = static_cast<double>(graph::element_bytes(dtype));
  return kind == Family::kAttention ? 2 * 4 + 2 * operand : 4 * 4 + 5 * operand;
}

}  // namespace

double CalibratedModel::seconds(const ModelGraph& graph, OpId op, std::int64_t samples,
                                const DeviceType& type) const {
  if (!type.calibration) return RooflineModel().seconds(graph, op, samples, type);
  const Calibration& calibration = *type.calibration;
  const OpWork work = op_work(graph, op, samples);
  const Family kind = graph.facts(op).family;
  switch (work.op_class) {
    case OpClass::kMatMul: {
      if (kind == Family::kAttention || kind == Family::kAttentionBackward) {
        // One kernel at the rate of its products, which are all of a size: a tile of the result is
        // kept while all keys go by. Scores never leave the chip.
        const AttentionSize a = attention_size(graph, op, samples);
        // A processor writes the weights down; their traffic stays in its caches.
        const bool written = a.drops && !type.name.starts_with("CPU");
        const double heads = a.samples * a.heads_of_sample;
        const double weights = heads * a.queries * a.keys;
        const auto moved = static_cast<Bytes>(weights * bytes_of_written_weight(kind, work.dtype));
        return product_seconds(
                   {.kind = ProductKind::kMatMul,
                    .dtype = work.dtype,
                    .size = {.batch = std::max(1.0, (written ? heads : a.heads) * a.products),
                             .m = a.queries,
                             .n = a.width,
                             .k = a.keys},
                    .bytes = work.bytes,
                    .tf32 = graph.tf32().products},
                   type, calibration) +
               (written ? traffic_seconds(TrafficKind::kElementwise, moved, type, calibration) : 0);
      }
      const std::size_t left = kind == Family::kMatMulAdd ? 1 : 0;
      // A packed weight is unpacked by a kernel of its own, which goes first.
      const Bytes unpacked = unpacked_bytes(graph, op, samples);
      Bytes unpacking = unpacked;
      for (std::size_t i = 1; unpacked > 0 && i < 3; ++i) {
        unpacking += read_bytes(graph, tensor_arg(graph.args(op), i), samples);
      }
      const double before =
          unpacked > 0 ? traffic_seconds(TrafficKind::kElementwise, unpacking, type, calibration)
                       : 0;
      return before + product_seconds({.kind = ProductKind::kMatMul,
                                       .dtype = work.dtype,
                                       .size = matmul_size(graph, op, left, samples),
                                       .bytes = work.bytes - unpacking,
                                       .tf32 = graph.tf32().products},
                                      type, calibration);
    }
    case OpClass::kConvolution:
    case OpClass::kConvolution3x3:
      return convolution_seconds(graph, op, kind, work, samples, type, calibration);
    case OpClass::kDepthwiseConvolution:
      return depthwise_seconds(work.flop, work.bytes, type, calibration);
    case OpClass::kPooling:
      return pooling_seconds(
          kind == Family::kPoolingBackward ? TrafficKind::kPoolingBackward : TrafficKind::kPooling,
          pool_visits(graph, op, kind, samples), work.bytes, type, calibration);
    case OpClass::kNormalization:
      if (kind == Family::kBatchNorm || kind == Family::kBatchNormBackward) {
        return batch_norm_seconds(traffic_kind(kind, work.op_class),
                                  channels(graph, op, kind, samples), work.bytes, type,
                                  calibration);
      }
      return traffic_seconds(traffic_kind(kind, work.op_class), work.bytes, type, calibration);
    case OpClass::kSoftmax:
      if (kind == Family::kSoftmaxBackward) {
        // Gradient times result by one kernel, the rest by another.
        return traffic_seconds(TrafficKind::kElementwise, work.bytes / 2, type, calibration) +
               traffic_seconds(TrafficKind::kSoftmax, work.bytes - work.bytes / 2, type,
                               calibration);
      }
      return traffic_seconds(TrafficKind::kSoftmax, work.bytes, type, calibration);
    default:
      return traffic_seconds(traffic_kind(kind, work.op_class), work.bytes, type, calibration);
  }
}

Bytes CalibratedModel::workspace_bytes(const ModelGraph& graph, OpId op, std::int64_t samples,
                                       const DeviceType& type) const {
  return RooflineModel().workspace_bytes(graph, op, samples, type);
}

}  // namespace heterog::cost
