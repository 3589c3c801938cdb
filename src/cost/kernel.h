// The formula of the calibrated cost model: seconds of one kernel from its sizes.
#pragma once

#include "base/units.h"
#include "cluster/cluster.h"
#include "graph/types.h"

namespace heterog::cost {

// `batch` products of [m, k] by [k, n].
struct ProductSize {
  double batch = 1, m = 1, n = 1, k = 1;
};

// A convolution by the sizes of its forward pass, whichever pass is asked for.
struct ConvolutionSize {
  double samples = 1, groups = 1;
  double channels = 1, filters = 1;            // of all groups
  double input_height = 1, input_width = 1;    // 1-d: height 1; 3-d: the last two dimensions as one
  double output_height = 1, output_width = 1;  // the same
  double taps = 1;                             // places of the kernel
  double stride_area = 1;                      // product of the strides
  int winograd_side = 0;  // side of a square kernel at stride and dilation 1, 0: none such
};

// A matrix product or one pass of a convolution.
struct Product {
  cluster::ProductKind kind = cluster::ProductKind::kMatMul;
  graph::DType dtype = graph::DType::kFloat32;
  ProductSize size;       // kMatMul
  ConvolutionSize shape;  // the others
  Bytes bytes = 0;        // operands and results
  bool tf32 = false;      // whether fp32 operands may be rounded to it
  // Bytes of a convolution's activations that are not channels-last. Tensor cores read and write
  // that layout alone, so the library copies them there, or back.
  Bytes contiguous_bytes = 0;
};

// The slower of multiplying and moving, plus a launch. The multiplications are those of whole
// tiles, a wave of one tile a multiprocessor after another; the tile, and into how many parts the
// inner dimension is split, are the fastest of a menu, as a library picks them. Never falls when a
// size grows.
double product_seconds(const Product& product, const cluster::DeviceType& type,
                       const cluster::Calibration& calibration);

double traffic_seconds(cluster::TrafficKind kind, Bytes bytes, const cluster::DeviceType& type,
                       const cluster::Calibration& calibration);

// A multiprocessor works on a channel at a time, so few channels leave some of them idle.
double batch_norm_seconds(cluster::TrafficKind kind, double channels, Bytes bytes,
                          const cluster::DeviceType& type, const cluster::Calibration& calibration);

// `visits`: places of all windows together.
double pooling_seconds(cluster::TrafficKind kind, double visits, Bytes bytes,
                       const cluster::DeviceType& type, const cluster::Calibration& calibration);

double depthwise_seconds(double flop, Bytes bytes, const cluster::DeviceType& type,
                         const cluster::Calibration& calibration);

}  // namespace heterog::cost
