// The analytic cost model: the slower of arithmetic and traffic, plus a launch.
#include <algorithm>

#include "cost/cost_model.h"

namespace heterog::cost {
namespace {

using cluster::DeviceType;
using cluster::OpClass;
using graph::DType;

// cuDNN is given scratch memory up to this much; beyond it a slower, leaner algorithm is taken.
constexpr Bytes kMaxWorkspaceBytes = Bytes{256} << 20;

double peak_flops(const DeviceType& type, OpClass op_class, DType dtype, const graph::Tf32& tf32) {
  switch (dtype) {
    case DType::kFloat16:
      return type.half_flops_per_second;
    case DType::kBFloat16:
      return type.bf16_flops_per_second.value_or(type.half_flops_per_second);
    case DType::kFloat64:
      return type.fp64_flops_per_second;
    default:
      const bool convolution =
          op_class == OpClass::kConvolution || op_class == OpClass::kConvolution3x3;
      const bool allowed =
          convolution ? tf32.convolutions : tf32.products && op_class == OpClass::kMatMul;
      return allowed && type.tf32_flops_per_second > 0 ? type.tf32_flops_per_second
                                                       : type.fp32_flops_per_second;
  }
}

}  // namespace

double RooflineModel::seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                              const DeviceType& type) const {
  const OpWork work = op_work(graph, op, samples);
  const double own_share = type.efficiency[static_cast<int>(work.op_class)];
  double arithmetic = 0;
  double traffic_share = own_share;
  switch (work.op_class) {
    case OpClass::kMatMul:
    case OpClass::kConvolution:
    case OpClass::kConvolution3x3:
    case OpClass::kDepthwiseConvolution: {
      const double peak = peak_flops(type, work.op_class, work.dtype, graph.tf32());
      // Depthwise kernels are small everywhere; their share already says so.
      const double ramp =
          work.op_class == OpClass::kDepthwiseConvolution ? 0 : type.half_efficiency_flop;
      if (work.flop > 0) arithmetic = (work.flop + ramp) / (peak * own_share);
      traffic_share = type.efficiency[static_cast<int>(OpClass::kElementwise)];
      break;
    }
    default:
      break;
  }
  const double traffic =
      static_cast<double>(work.bytes) / (type.memory_bytes_per_second * traffic_share);
  return std::max(arithmetic, traffic) + type.launch_seconds;
}

Bytes RooflineModel::workspace_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                                     const DeviceType& type) const {
  return std::min(unfold_bytes(graph, op, samples), kMaxWorkspaceBytes) +
         weights_bytes(graph, op, samples, type);
}

}  // namespace heterog::cost
