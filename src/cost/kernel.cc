// Tiles, waves, Winograd and traffic: the calibrated formula.
#include "cost/kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace heterog::cost {
namespace {

using cluster::Calibration;
using cluster::DeviceType;
using cluster::Precision;
using cluster::ProductConstants;
using cluster::ProductKind;
using graph::DType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sides of the tiles of the result that libraries have kernels for, the largest first.
struct Tile {
  double m, n;
};
constexpr std::array<Tile, 12> kTiles = {{{256, 128},
                                          {128, 256},
                                          {128, 128},
                                          {128, 64},
                                          {64, 128},
                                          {64, 64},
                                          {128, 32},
                                          {32, 128},
                                          {64, 32},
                                          {32, 64},
                                          {32, 32},
                                          {16, 16}}};
constexpr double kMaxSplits = 128;  // of the inner dimension over multiprocessors

// The part of the last level of cache that a kernel finds its operands in; the rest holds what
// others left. What it holds moves that much faster than memory.
constexpr double kCachePart = 0.5;
constexpr double kCacheSpeed = 3;

// Channels that a tensor core takes at a time.
constexpr double kAligned = 8;

Precision precision(const DeviceType& type, const Product& product) {
  if (product.dtype == DType::kBFloat16 && type.bf16_flops_per_second) return Precision::kFull;
  if (product.dtype == DType::kFloat16 || product.dtype == DType::kBFloat16) {
    const ConvolutionSize& conv = product.shape;
    // Before TF32, libraries had no tensor-core convolutions of other numbers of channels; since,
    // they fill them up.
    const bool aligned = product.kind == ProductKind::kMatMul || type.tf32_flops_per_second > 0 ||
                         (std::fmod(conv.channels / conv.groups, kAligned) == 0 &&
                          std::fmod(conv.filters / conv.groups, kAligned) == 0);
    return aligned ? Precision::kHalf : Precision::kFull;
  }
  const bool tf32 = product.tf32 && type.tf32_flops_per_second > 0;
  return tf32 && product.dtype != DType::kFloat64 ? Precision::kTf32 : Precision::kFull;
}

double peak_flops(const DeviceType& type, Precision precision, DType dtype) {
  if (precision == Precision::kHalf) return type.half_flops_per_second;
  if (precision == Precision::kTf32) return type.tf32_flops_per_second;
  if (dtype == DType::kBFloat16 && type.bf16_flops_per_second) return *type.bf16_flops_per_second;
  return dtype == DType::kFloat64 ? type.fp64_flops_per_second : type.fp32_flops_per_second;
}

// What the device and the constants say of multiplying.
struct Rates {
  double flops_per_second = 0;  // of all multiprocessors
  double bytes_per_second = 0;
  double multiprocessors = 1;
  double tile_loss = 0;
  double fill = 0;
  double join_seconds = 0;
};

// A tile of m × n multiplies m·n pairs for every m + n numbers that it loads.
double tile_loss(const Tile& tile, double constant) {
  return 1 + constant * (1 / tile.m + 1 / tile.n);
}

// Seconds of the multiplications in tiles of the best shape and the best split of k. Partial
// results of a split are written and read once more, in fp32, by a kernel of its own.
double tiled_seconds(const ProductSize& size, const Rates& rates, double max_splits = kMaxSplits) {
  double best = kInfinity;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(size.m / tile.m) * std::ceil(size.n / tile.n) * size.batch;
    const double loss = tile_loss(tile, rates.tile_loss) / tile_loss(kTiles[0], rates.tile_loss);
    const double seconds_per_step =
        2 * tile.m * tile.n * loss * rates.multiprocessors / rates.flops_per_second;
    for (double splits = 1; splits <= max_splits; splits *= 2) {
      const double waves = std::ceil(tiles * splits / rates.multiprocessors);
      double seconds = waves * (std::ceil(size.k / splits) + rates.fill) * seconds_per_step;
      if (splits > 1) {
        seconds += 2 * 4 * size.batch * size.m * size.n * splits / rates.bytes_per_second +
                   splits * rates.join_seconds;
      }
      best = std::min(best, seconds);
      // All multiprocessors are busy for two waves: nothing more to gain.
      if (waves > 2) break;
    }
  }
  return best;
}

// A batch of products goes by kernels that take k_step terms at a time; a single one has kernels for
// every inner dimension.
ProductSize rounded_up(ProductSize size, double k_step) {
  if (size.batch > 1) size.k = k_step * std::ceil(size.k / k_step);
  return size;
}

// The pass as one matrix product per group.
ProductSize implicit_product(const ConvolutionSize& conv, ProductKind kind, double stride_waste) {
  const double channels = conv.channels / conv.groups, filters = conv.filters / conv.groups;
  const double outputs = conv.samples * conv.output_height * conv.output_width;
  switch (kind) {
    case ProductKind::kConvolutionInputGradient:
      return {.batch = conv.groups,
              .m = conv.samples * conv.input_height * conv.input_width,
              .n = channels,
              // Of the places of the kernel one in stride_area meets a gradient that is there.
              .k = filters * conv.taps / std::pow(conv.stride_area, 1 - stride_waste)};
    case ProductKind::kConvolutionWeightGradient:
      return {.batch = conv.groups, .m = filters, .n = channels * conv.taps, .k = outputs};
    default:
      return {.batch = conv.groups, .m = outputs, .n = filters, .k = channels * conv.taps};
  }
}

// Winograd's algorithm: tiles of the image are transformed to `side`² numbers, each of which is an
// entry of its own matrix product over channels; a tile yields (side − kernel + 1)² results.
double winograd_seconds(const ConvolutionSize& conv, ProductKind kind, int side,
                        const Rates& rates) {
  const double results = side - conv.winograd_side + 1;
  const double tiles = conv.samples * std::ceil(conv.output_height / results) *
                       std::ceil(conv.output_width / results);
  ProductSize size{.batch = static_cast<double>(side) * side};
  switch (kind) {
    case ProductKind::kConvolutionInputGradient:
      size.m = tiles, size.n = conv.channels, size.k = conv.filters;
      break;
    case ProductKind::kConvolutionWeightGradient:
      size.m = conv.filters, size.n = conv.channels, size.k = tiles;
      break;
    default:
      size.m = tiles, size.n = conv.filters, size.k = conv.channels;
      break;
  }
  // Tiles of 4 × 4 are transformed inside the kernel that multiplies; larger ones are written to
  // memory and read back, and so is every transformed weight, or its gradient.
  const double images = side > 4 ? tiles * (conv.channels + conv.filters) : 0;
  const double transforms = 2 * 4 * size.batch * (images + conv.channels * conv.filters);
  // One product of a batch: none of them is split.
  return tiled_seconds(size, rates, 1) + transforms / rates.bytes_per_second;
}

// What moves between memory and the chip, in bytes at the rate of memory. Updates and look-ups meet
// parameters, which nothing has touched for long.
double uncached_bytes(cluster::TrafficKind kind, Bytes bytes, const DeviceType& type) {
  if (kind == cluster::TrafficKind::kOptimizer || kind == cluster::TrafficKind::kEmbedding) {
    return static_cast<double>(bytes);
  }
  const double all = static_cast<double>(bytes);
  const double kept = std::min(all, kCachePart * static_cast<double>(type.cache_bytes));
  return all - kept * (1 - 1 / kCacheSpeed);
}

}  // namespace

double product_seconds(const Product& product, const DeviceType& type,
                       const Calibration& calibration) {
  const Precision multiplied = precision(type, product);
  const ProductConstants& constants =
      calibration.products[static_cast<int>(multiplied)][static_cast<int>(product.kind)];
  const double peak = peak_flops(type, multiplied, product.dtype);
  Rates rates{.flops_per_second = peak * constants.share,
              .bytes_per_second = type.memory_bytes_per_second * constants.bandwidth_share,
              .multiprocessors = static_cast<double>(type.multiprocessors),
              .tile_loss = constants.tile_loss,
              .fill = constants.fill,
              .join_seconds = constants.join_seconds};
  double arithmetic = 0, copies = 0;
  if (product.kind == ProductKind::kMatMul) {
    arithmetic = tiled_seconds(rounded_up(product.size, constants.k_step), rates);
  } else {
    const ConvolutionSize& conv = product.shape;
    arithmetic = tiled_seconds(implicit_product(conv, product.kind, constants.stride_waste), rates);
    if (multiplied != Precision::kFull) {
      copies = 2 * static_cast<double>(product.contiguous_bytes) /
               (type.memory_bytes_per_second *
                calibration.traffic[static_cast<int>(cluster::TrafficKind::kCopy)].bandwidth_share);
    }
    if (conv.winograd_side > 0 && constants.winograd_share > 0 &&
        product.dtype != DType::kFloat64) {
      rates.flops_per_second = peak * constants.winograd_share;
      if (conv.winograd_side == 3) {
        arithmetic = std::min(arithmetic, winograd_seconds(conv, product.kind, 4, rates));
      }
      const int side = conv.winograd_side + 3;
      arithmetic = std::min(arithmetic, winograd_seconds(conv, product.kind, side, rates));
    }
  }
  const double traffic = static_cast<double>(product.bytes) / rates.bytes_per_second;
  const auto& sustained = product.kind == ProductKind::kMatMul ? type.sustained.matmul
                                                               : type.sustained.convolution;
  return std::max((std::max(arithmetic, traffic) + copies + constants.fixed_seconds) /
                      sustained[static_cast<int>(multiplied)],
                  type.launch_seconds);
}

double traffic_seconds(cluster::TrafficKind kind, Bytes bytes, const DeviceType& type,
                       const Calibration& calibration) {
  const cluster::TrafficConstants& constants = calibration.traffic[static_cast<int>(kind)];
  const double busy = uncached_bytes(kind, bytes, type) /
                      (type.memory_bytes_per_second * constants.bandwidth_share);
  return std::max((busy + constants.fixed_seconds) / type.sustained.traffic, type.launch_seconds);
}

double batch_norm_seconds(cluster::TrafficKind kind, double channels, Bytes bytes,
                          const DeviceType& type, const Calibration& calibration) {
  const cluster::TrafficConstants& constants = calibration.traffic[static_cast<int>(kind)];
  const double working = std::min(1.0, channels / static_cast<double>(type.multiprocessors));
  const double busy = uncached_bytes(kind, bytes, type) /
                      (type.memory_bytes_per_second * constants.bandwidth_share * working);
  return std::max((busy + constants.fixed_seconds) / type.sustained.traffic, type.launch_seconds);
}

double pooling_seconds(cluster::TrafficKind kind, double visits, Bytes bytes,
                       const DeviceType& type, const Calibration& calibration) {
  const cluster::TrafficConstants& constants = calibration.traffic[static_cast<int>(kind)];
  const double traffic = traffic_seconds(kind, bytes, type, calibration);
  if (constants.window_share <= 0) return traffic;
  return traffic + visits / (type.fp32_flops_per_second * constants.window_share);
}

double depthwise_seconds(double flop, Bytes bytes, const DeviceType& type,
                         const Calibration& calibration) {
  const double arithmetic = flop / (type.fp32_flops_per_second * calibration.depthwise_share);
  return std::max(arithmetic + type.launch_seconds,
                  traffic_seconds(cluster::TrafficKind::kElementwise, bytes, type, calibration));
}

}  // namespace heterog::cost
