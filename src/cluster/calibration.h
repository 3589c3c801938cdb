// Fitted constants of the calibrated cost model: how far kernels fall short of a device's peaks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heterog::cluster {

// Kernels that multiply: a matrix product, or a pass of a convolution seen as one.
enum class ProductKind : std::uint8_t {
  kMatMul,
  kConvolutionForward,
  kConvolutionInputGradient,
  kConvolutionWeightGradient
};
inline constexpr int kProductKindCount = 4;

// The units that multiply: tensor cores have a rate and losses of their own.
enum class Precision : std::uint8_t {
  kFull,  // fp32 and fp64
  kTf32,  // fp32 tensors, where the device has it and the graph lets it
  kHalf   // fp16 and bf16
};
inline constexpr int kPrecisionCount = 3;

// The key of the constants: "matmul", "convolution_forward_tf32", "matmul_half".
std::string product_constants_name(ProductKind kind, Precision precision);

// Kernels that move bytes.
enum class TrafficKind : std::uint8_t {
  kElementwise,
  kReduction,
  kBatchNorm,
  kBatchNormBackward,
  kLayerNorm,
  kSoftmax,
  kPooling,
  kPoolingBackward,
  kEmbedding,
  kCopy,
  kOptimizer
};
inline constexpr int kTrafficKindCount = 11;
std::string_view traffic_kind_name(TrafficKind kind);  // "batch_norm"

// cost/kernel.h has the formula.
struct ProductConstants {
  double share = 1;            // of the arithmetic peak, with the largest tiles
  double tile_loss = 0;        // elements of a tile's side: loads beside multiplications
  double fill = 0;             // steps of the inner dimension that starting and ending a tile costs
  double bandwidth_share = 1;  // of what operands and results move at
  double fixed_seconds = 0;    // of a launch
  double winograd_share = 0;   // of the peak, by the multiplications that Winograd needs; 0: none
  // Between 0, where gradients of strided convolutions skip the zeros between the positions that
  // the stride leaves, and 1, where they multiply them.
  double stride_waste = 0;
  double join_seconds = 0;  // to add one part more of a split inner dimension
  // The multiple that the inner dimension of batched products is rounded up to, by kernels whose
  // loops are unrolled that far.
  double k_step = 1;

  friend bool operator==(const ProductConstants&, const ProductConstants&) = default;
};

struct TrafficConstants {
  double bandwidth_share = 1;
  double fixed_seconds = 0;
  // Pools only, 0: no bound. Of the fp32 peak, a visit of one place of a window counting as 1.
  double window_share = 0;

  friend bool operator==(const TrafficConstants&, const TrafficConstants&) = default;
};

struct Calibration {
  ProductConstants products[kPrecisionCount][kProductKindCount];
  TrafficConstants traffic[kTrafficKindCount];
  double depthwise_share = 1;  // of the fp32 peak: convolutions of one channel a group

  friend bool operator==(const Calibration&, const Calibration&) = default;
};

// The part of a kernel's speed, alone and rested, that a card sustains through whole steps: power,
// heat, clocks, memory that others wrote to. Fitted to measured steps, kind by kind.
struct Sustained {
  double matmul[kPrecisionCount] = {1, 1, 1};
  double convolution[kPrecisionCount] = {1, 1, 1};
  double traffic = 1;

  friend bool operator==(const Sustained&, const Sustained&) = default;
};

}  // namespace heterog::cluster
