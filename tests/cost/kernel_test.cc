// The calibrated formula: tiles, waves, splits, Winograd and traffic, worked out by hand.
#include "cost/kernel.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "cluster/builders.h"
#include "cluster/cluster_io.h"

namespace heterog::cost {
namespace {

using cluster::Calibration;
using cluster::DeviceType;
using cluster::Precision;
using cluster::ProductConstants;
using cluster::ProductKind;
using cluster::TrafficKind;
using graph::DType;

// test_type(): 10 TFLOP/s fp32, 20 half, 5 fp64, 1 TB/s, no launch; with 10 multiprocessors.
DeviceType ten_multiprocessors() {
  DeviceType type = cluster::test_type();
  type.multiprocessors = 10;
  return type;
}

// Constants at which nothing is lost; a split costs so much that none pays.
Calibration lossless() {
  Calibration calibration;
  for (auto& products : calibration.products) {
    for (ProductConstants& constants : products) constants.join_seconds = 1;
  }
  return calibration;
}

ProductConstants& constants(Calibration& calibration, ProductKind kind,
                            Precision precision = Precision::kFull) {
  return calibration.products[static_cast<int>(precision)][static_cast<int>(kind)];
}

Product matmul(double m, double n, double k) { return {.size = {.m = m, .n = n, .k = k}}; }

void expect_seconds(double expected, double actual) {
  EXPECT_NEAR(actual / expected, 1, 1e-9) << actual << " s, expected " << expected;
}

TEST(Kernel, WholeTilesAndWavesLoseNothing) {
  // 1280 × 1280 are 50 tiles of 256 × 128: five waves of ten. 2·1280²·100 FLOP at 10 TFLOP/s.
  expect_seconds(32.768e-6,
                 product_seconds(matmul(1280, 1280, 100), ten_multiprocessors(), lossless()));
}

TEST(Kernel, AWaveThatIsNotFullTakesAsLongAsAFullOne) {
  // Loads so dear that only shapes of tiles count: a tile costs its side m + side n.
  Calibration calibration = lossless();
  constants(calibration, ProductKind::kMatMul).tile_loss = 1e12;
  const DeviceType type = ten_multiprocessors();
  const double ten = product_seconds(matmul(2560, 128, 64), type, calibration);
  // Ten tiles of 256 × 128, one wave: 2·256·128·64 FLOP at a tenth of 10 TFLOP/s.
  expect_seconds(4.194304e-6, ten);
  // Eleven: two waves; or 22 of 128 × 128 in three waves, each 1/2 · (2/128) / (3/256) = 2/3 of a
  // large one's. Smaller tiles are dearer.
  expect_seconds(2 * ten, product_seconds(matmul(2816, 128, 64), type, calibration));
  // Twenty fill both waves at the same price.
  expect_seconds(2 * ten, product_seconds(matmul(5120, 128, 64), type, calibration));
}

TEST(Kernel, ASmallProductWastesItsTileAndIsSplit) {
  Calibration calibration = lossless();
  const DeviceType type = ten_multiprocessors();
  // One result of 1000 steps: the smallest tile, 16 × 16, on one of ten multiprocessors: 0.512 ns a
  // step.
  expect_seconds(512e-9, product_seconds(matmul(1, 1, 1000), type, calibration));
  // Joins for nothing: eight parts of 125 steps in one wave (16 would need two), which write and
  // read eight partial results of 4 bytes.
  constants(calibration, ProductKind::kMatMul).join_seconds = 0;
  expect_seconds(64e-9 + 64e-12, product_seconds(matmul(1, 1, 1000), type, calibration));
  // Filling a tile costs as much as 125 steps: four parts, 250 + 125 steps, where eight take
  // 125 + 125: eight still, at 128 ns.
  constants(calibration, ProductKind::kMatMul).fill = 125;
  expect_seconds(128e-9 + 64e-12, product_seconds(matmul(1, 1, 1000), type, calibration));
}

TEST(Kernel, BatchedProductsRoundTheInnerDimensionUp) {
  Calibration calibration = lossless();
  const DeviceType type = ten_multiprocessors();
  constants(calibration, ProductKind::kMatMul).k_step = 128;
  const auto seconds = [&](double batch, double k) {
    Product product = matmul(256, 128, k);
    product.size.batch = batch;
    return product_seconds(product, type, calibration);
  };
  // Ten tiles of 256 × 128, one wave of 128 steps: 2·256·128·128 FLOP at a tenth of 10 TFLOP/s.
  expect_seconds(8.388608e-6, seconds(10, 64));
  expect_seconds(8.388608e-6, seconds(10, 128));
  expect_seconds(2 * 8.388608e-6, seconds(10, 129));
  // A single product has a kernel for each.
  EXPECT_LT(seconds(1, 64), 0.6 * seconds(1, 128));
}

TEST(Kernel, Bfloat16GoesByUnitsOfSinglePrecisionWhereTensorCoresDoNotKnowIt) {
  Calibration calibration = lossless();
  DeviceType type = ten_multiprocessors();
  Product product = matmul(1280, 1280, 100);
  product.dtype = DType::kBFloat16;
  const double known = product_seconds(product, type, calibration);
  type.bf16_flops_per_second = 5e12;
  // 2·1280²·100 FLOP at 5 TFLOP/s; float16 is as fast as before.
  expect_seconds(65.536e-6, product_seconds(product, type, calibration));
  constants(calibration, ProductKind::kMatMul, Precision::kFull).share = 0.5;
  expect_seconds(131.072e-6, product_seconds(product, type, calibration));
  product.dtype = DType::kFloat16;
  expect_seconds(known, product_seconds(product, type, calibration));
}

TEST(Kernel, WhatACardSustainsStretchesItsKernels) {
  const Calibration calibration = lossless();
  DeviceType type = ten_multiprocessors();
  type.sustained.matmul[static_cast<int>(Precision::kFull)] = 0.8;
  type.sustained.traffic = 0.5;
  expect_seconds(32.768e-6 / 0.8, product_seconds(matmul(1280, 1280, 100), type, calibration));
  Product half = matmul(1280, 1280, 100);
  half.dtype = DType::kFloat16;
  expect_seconds(16.384e-6, product_seconds(half, type, calibration));
  expect_seconds(200e-6,
                 traffic_seconds(TrafficKind::kElementwise, 100'000'000, type, calibration));
}

TEST(Kernel, TheSlowerOfMultiplyingAndMovingCounts) {
  Calibration calibration = lossless();
  DeviceType type = ten_multiprocessors();
  Product product = matmul(1280, 1280, 100);
  product.bytes = 100'000'000;  // 100 us at 1 TB/s
  expect_seconds(100e-6, product_seconds(product, type, calibration));
  constants(calibration, ProductKind::kMatMul).bandwidth_share = 0.5;
  expect_seconds(200e-6, product_seconds(product, type, calibration));
  constants(calibration, ProductKind::kMatMul).fixed_seconds = 5e-6;
  expect_seconds(205e-6, product_seconds(product, type, calibration));
  // A launch is the least that anything takes.
  type.launch_seconds = 1e-3;
  expect_seconds(1e-3, product_seconds(product, type, calibration));
}

TEST(Kernel, PrecisionDecidesThePeakAndTheConstants) {
  Calibration calibration = lossless();
  DeviceType type = ten_multiprocessors();
  Product product = matmul(1280, 1280, 100);
  product.dtype = DType::kBFloat16;
  expect_seconds(16.384e-6, product_seconds(product, type, calibration));
  constants(calibration, ProductKind::kMatMul, Precision::kHalf).share = 0.5;
  expect_seconds(32.768e-6, product_seconds(product, type, calibration));
  product.dtype = DType::kFloat64;
  expect_seconds(65.536e-6, product_seconds(product, type, calibration));
  // TF32 where the device has it and the graph lets it.
  product.dtype = DType::kFloat32;
  product.tf32 = true;
  expect_seconds(32.768e-6, product_seconds(product, type, calibration));
  type.tf32_flops_per_second = 40e12;
  expect_seconds(8.192e-6, product_seconds(product, type, calibration));
  product.tf32 = false;
  expect_seconds(32.768e-6, product_seconds(product, type, calibration));
  Product conv{.kind = ProductKind::kConvolutionForward,
               .shape = {.samples = 1280, .channels = 100, .filters = 1280},
               .tf32 = true};
  expect_seconds(8.192e-6, product_seconds(conv, type, calibration));
  constants(calibration, conv.kind, Precision::kTf32).share = 0.25;
  expect_seconds(32.768e-6, product_seconds(conv, type, calibration));
}

TEST(Kernel, WinogradSavesThreeQuartersOfAThreeByThree) {
  Calibration calibration = lossless();
  DeviceType type = ten_multiprocessors();
  type.memory_bytes_per_second = 1e30;  // transforms for nothing
  Product conv{.kind = ProductKind::kConvolutionForward,
               .shape = {.samples = 10,
                         .channels = 64,
                         .filters = 64,
                         .input_height = 64,
                         .input_width = 64,
                         .output_height = 64,
                         .output_width = 64,
                         .taps = 9,
                         .winograd_side = 3}};
  // As one product: [40960, 576] · [576, 64].
  const double direct = 2.0 * 40960 * 576 * 64 / 10e12;
  expect_seconds(direct, product_seconds(conv, type, calibration));
  // 2560 tiles of 4 × 4 results need 36 multiplications where the nine taps need 144.
  for (ProductKind kind :
       {ProductKind::kConvolutionForward, ProductKind::kConvolutionInputGradient}) {
    conv.kind = kind;
    constants(calibration, kind).winograd_share = 1;
    expect_seconds(direct / 4, product_seconds(conv, type, calibration));
  }
  // Where transforms are dear, tiles of 2 × 2 results stay: 16 multiplications for 36, and so many
  // numbers of 4 bytes for each weight, written and read.
  conv.kind = ProductKind::kConvolutionForward;
  type.memory_bytes_per_second = 1e11;
  expect_seconds(direct * 16 / 36 + 2.0 * 4 * 16 * 64 * 64 / 1e11,
                 product_seconds(conv, type, calibration));
  // Not in half precision, and not for other kernels.
  conv.dtype = DType::kFloat64;
  expect_seconds(2 * direct, product_seconds(conv, type, calibration));
}

TEST(Kernel, TheThreePassesOfAConvolutionAreThreeProducts) {
  const Calibration calibration = lossless();
  DeviceType type = ten_multiprocessors();
  type.multiprocessors = 1;  // no waves: only tiles
  Product conv{.shape = {.samples = 2,
                         .channels = 256,
                         .filters = 512,
                         .input_height = 16,
                         .input_width = 16,
                         .output_height = 8,
                         .output_width = 8,
                         .taps = 4,
                         .stride_area = 4}};
  const auto seconds = [&](ProductKind kind, double stride_waste) {
    Calibration with = calibration;
    constants(with, kind).stride_waste = stride_waste;
    conv.kind = kind;
    return product_seconds(conv, type, with);
  };
  // 2·64 positions, 512 filters, 4 taps of 256 channels.
  const double work = 2.0 * 128 * 512 * 1024 / 10e12;
  expect_seconds(work, seconds(ProductKind::kConvolutionForward, 0));
  expect_seconds(work, seconds(ProductKind::kConvolutionWeightGradient, 0));
  expect_seconds(work, seconds(ProductKind::kConvolutionInputGradient, 0));
  // Zeros between the positions multiplied as well: four times the work.
  expect_seconds(4 * work, seconds(ProductKind::kConvolutionInputGradient, 1));
  // Two groups: half the channels each.
  conv.shape.groups = 2;
  expect_seconds(work / 2, seconds(ProductKind::kConvolutionForward, 0));
}

TEST(Kernel, TrafficAndPools) {
  Calibration calibration;
  DeviceType type = ten_multiprocessors();
  calibration.traffic[static_cast<int>(TrafficKind::kSoftmax)] = {.bandwidth_share = 0.5,
                                                                  .fixed_seconds = 3e-6};
  expect_seconds(23e-6, traffic_seconds(TrafficKind::kSoftmax, 10'000'000, type, calibration));
  expect_seconds(10e-6, traffic_seconds(TrafficKind::kCopy, 10'000'000, type, calibration));
  // Ten million visits at a hundredth of 10 TFLOP/s.
  auto& pool = calibration.traffic[static_cast<int>(TrafficKind::kPooling)];
  pool = {.fixed_seconds = 1e-6, .window_share = 0.01};
  expect_seconds(101.001e-6, pooling_seconds(TrafficKind::kPooling, 1e7, 1000, type, calibration));
  expect_seconds(301e-6,
                 pooling_seconds(TrafficKind::kPooling, 1e7, 200'000'000, type, calibration));
}

TEST(Kernel, TensorCoresTakeChannelsLastAndMultiplesOfEight) {
  Calibration calibration = lossless();
  DeviceType type = ten_multiprocessors();
  Product conv{.kind = ProductKind::kConvolutionForward,
               .dtype = DType::kFloat16,
               .shape = {.samples = 1280, .channels = 96, .filters = 1280}};
  const double work = 2.0 * 1280 * 96 * 1280 / 20e12;
  expect_seconds(work, product_seconds(conv, type, calibration));
  // What lies otherwise is read and written once more, at the rate of copies.
  calibration.traffic[static_cast<int>(TrafficKind::kCopy)].bandwidth_share = 0.5;
  conv.contiguous_bytes = 1'000'000;
  expect_seconds(work + 4e-6, product_seconds(conv, type, calibration));
  // 100 channels: by the units of single precision, which read any layout; padded on later cards.
  conv.shape.channels = 100;
  expect_seconds(2.0 * 1280 * 100 * 1280 / 10e12, product_seconds(conv, type, calibration));
  type.tf32_flops_per_second = 40e12;
  expect_seconds(2.0 * 1280 * 100 * 1280 / 20e12 + 4e-6, product_seconds(conv, type, calibration));
}

TEST(Kernel, FewChannelsLeaveMultiprocessorsIdle) {
  const Calibration calibration;
  const DeviceType type = ten_multiprocessors();
  const auto seconds = [&](double channels) {
    return batch_norm_seconds(TrafficKind::kBatchNorm, channels, 10'000'000, type, calibration);
  };
  expect_seconds(10e-6, seconds(10));
  expect_seconds(10e-6, seconds(64));
  expect_seconds(40e-6, seconds(2.5));
}

TEST(Kernel, ALargeCacheKeepsPartOfWhatMoves) {
  const Calibration calibration;
  DeviceType type = ten_multiprocessors();
  type.cache_bytes = 12'000'000;
  // Half of the cache, at three times the rate of memory: 6 of 9 MB in 2 us, 3 MB in 3 us.
  expect_seconds(5e-6, traffic_seconds(TrafficKind::kElementwise, 9'000'000, type, calibration));
  // All of 3 MB; but not what nothing has touched for long.
  expect_seconds(1e-6, traffic_seconds(TrafficKind::kCopy, 3'000'000, type, calibration));
  expect_seconds(3e-6, traffic_seconds(TrafficKind::kOptimizer, 3'000'000, type, calibration));
}

// No size may grow and the time fall: a planner would shrink a slice and pay for it.
TEST(Kernel, NeverFallsWhenASizeGrows) {
  const cluster::DeviceDatabase devices = cluster::read_devices("configs/devices.json");
  Rng rng(11);
  const auto size = [&](double most) {
    return std::floor(std::exp(rng.uniform() * std::log(most))) + 1;
  };
  int compared = 0;
  for (const auto& [name, type] : devices) {
    ASSERT_TRUE(type.calibration) << name;
    for (int i = 0; i < 400; ++i) {
      const double kernel = rng.uniform() < 0.5 ? 3 : 1;
      Product product{
          .kind = static_cast<ProductKind>(rng.below(cluster::kProductKindCount)),
          .dtype = rng.uniform() < 0.5 ? DType::kFloat32 : DType::kFloat16,
          .size = {.batch = size(20), .m = size(5000), .n = size(5000), .k = size(5000)},
          .shape = {.samples = size(200),
                    .channels = 8 * size(125),
                    .filters = 8 * size(125),
                    .input_height = 28,
                    .input_width = 28,
                    .output_height = 28,
                    .output_width = 28,
                    .taps = kernel * kernel,
                    .winograd_side = kernel == 3 ? 3 : 0},
          .bytes = 1000};
      const double before = product_seconds(product, type, *type.calibration);
      ASSERT_TRUE(std::isfinite(before) && before > 0) << name;
      double* const sizes[] = {
          &product.size.batch,    &product.size.m,         &product.size.n,       &product.size.k,
          &product.shape.samples, &product.shape.channels, &product.shape.filters};
      for (double* grown : sizes) {
        const double was = *grown;
        // By whole eights, which tensor cores may need.
        *grown += 8 * size(was);
        const double after = product_seconds(product, type, *type.calibration);
        EXPECT_GE(after, before * (1 - 1e-12))
            << name << ", kind " << static_cast<int>(product.kind);
        *grown = was;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 10000);
}

}  // namespace
}  // namespace heterog::cost
