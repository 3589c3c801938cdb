// The roofline: which bound counts, which peak, and what a launch adds.
#include <gtest/gtest.h>

#include "cluster/builders.h"
#include "cost/cost_model.h"

namespace heterog::cost {
namespace {

using cluster::OpClass;
using graph::Affine;
using graph::DType;
using graph::GraphBuilder;
using graph::tensor_value;
using graph::TensorRole;

// y = a·b with a [B, k], b [k, n].
graph::ModelGraph mm(std::int64_t k, std::int64_t n, DType dtype = DType::kFloat32) {
  GraphBuilder builder("mm");
  const auto tensor = [&](const char* name, TensorRole role, std::vector<Affine> shape) {
    return builder.add_tensor({.name = name, .role = role, .dtype = dtype, .shape = shape});
  };
  const TensorId a = tensor("a", TensorRole::kInput, {{1, 0}, {0, k}});
  const TensorId b = tensor("b", TensorRole::kInput, {{0, k}, {0, n}});
  const TensorId y = tensor("y", TensorRole::kActivation, {{1, 0}, {0, n}});
  builder.add_op({.name = "op",
                  .type = "aten.mm.default",
                  .args = {tensor_value(a), tensor_value(b)},
                  .outputs = {y}});
  return std::move(builder).build("mm");
}

double seconds(const graph::ModelGraph& graph, const cluster::DeviceType& type,
               std::int64_t samples) {
  return RooflineModel().seconds(graph, OpId(0), samples, type);
}

// test_type(): 10 TFLOP/s fp32, 20 half, 5 fp64, 1 TB/s, shares 1, no launch, no ramp.
TEST(Roofline, ArithmeticBound) {
  const auto graph = mm(1000, 1000);
  // 2·1000³ FLOP at 10 TFLOP/s = 200 us; 12 MB at 1 TB/s = 12 us.
  EXPECT_DOUBLE_EQ(seconds(graph, cluster::test_type(), 1000), 200e-6);
}

TEST(Roofline, BandwidthBound) {
  const auto graph = mm(1000, 1000);
  // One sample: 2 MFLOP = 0.2 us; 4·(1000 + 1000000 + 1000) bytes = 4.008 us.
  EXPECT_DOUBLE_EQ(seconds(graph, cluster::test_type(), 1), 4.008e-6);
}

TEST(Roofline, SharesRampAndLaunch) {
  const auto graph = mm(1000, 1000);
  cluster::DeviceType type = cluster::test_type();
  type.efficiency[static_cast<int>(OpClass::kMatMul)] = 0.5;
  EXPECT_DOUBLE_EQ(seconds(graph, type, 1000), 400e-6);
  type.half_efficiency_flop = 2e9;  // as much work again
  EXPECT_DOUBLE_EQ(seconds(graph, type, 1000), 800e-6);
  type.launch_seconds = 5e-6;
  EXPECT_DOUBLE_EQ(seconds(graph, type, 1000), 805e-6);
  // Traffic of a matrix product goes at the elementwise share.
  type = cluster::test_type();
  type.efficiency[static_cast<int>(OpClass::kElementwise)] = 0.5;
  EXPECT_DOUBLE_EQ(seconds(graph, type, 1), 8.016e-6);
}

TEST(Roofline, PeakFollowsTheOperands) {
  const cluster::DeviceType type = cluster::test_type();
  EXPECT_DOUBLE_EQ(seconds(mm(1000, 1000, DType::kFloat16), type, 1000), 100e-6);
  EXPECT_DOUBLE_EQ(seconds(mm(1000, 1000, DType::kBFloat16), type, 1000), 100e-6);
  EXPECT_DOUBLE_EQ(seconds(mm(1000, 1000, DType::kFloat64), type, 1000), 400e-6);
  cluster::DeviceType ampere = type;
  ampere.tf32_flops_per_second = 80e12;  // PyTorch does not use it for matrix products
  EXPECT_DOUBLE_EQ(seconds(mm(1000, 1000), ampere, 1000), 200e-6);
}

graph::ModelGraph convolution(std::int64_t kernel, std::int64_t channels) {
  GraphBuilder builder("conv");
  const auto ints = [](std::int64_t a) {
    return graph::list_value({graph::int_value(a), graph::int_value(a)});
  };
  const TensorId x = builder.add_tensor({.name = "x",
                                         .role = TensorRole::kInput,
                                         .shape = {{1, 0}, {0, channels}, {0, 100}, {0, 100}}});
  const TensorId w =
      builder.add_tensor({.name = "w",
                          .role = TensorRole::kInput,
                          .shape = {{0, 500}, {0, channels}, {0, kernel}, {0, kernel}}});
  const TensorId y =
      builder.add_tensor({.name = "y", .shape = {{1, 0}, {0, 500}, {0, 100}, {0, 100}}});
  builder.add_op({.name = "op",
                  .type = "aten.convolution.default",
                  .args = {tensor_value(x), tensor_value(w), graph::Value{}, ints(1),
                           ints(kernel / 2), ints(1), graph::Value{}, ints(0), graph::int_value(1)},
                  .outputs = {y}});
  return std::move(builder).build("conv");
}

TEST(Roofline, ConvolutionsMayUseTf32AndWinograd) {
  cluster::DeviceType type = cluster::test_type();
  // 1×1, 1000 channels: 2·500·100·100·1000 = 10 GFLOP.
  EXPECT_DOUBLE_EQ(seconds(convolution(1, 1000), type, 1), 1e-3);
  // 3×3, 100 channels: 9 GFLOP, at a share above one.
  type.efficiency[static_cast<int>(OpClass::kConvolution3x3)] = 1.5;
  EXPECT_DOUBLE_EQ(seconds(convolution(3, 100), type, 1), 0.6e-3);
  type = cluster::test_type();
  type.tf32_flops_per_second = 40e12;
  EXPECT_DOUBLE_EQ(seconds(convolution(1, 1000), type, 1), 0.25e-3);
}

TEST(Roofline, WorkspaceIsTheUnfoldedInputUpToACap) {
  const RooflineModel model;
  const cluster::DeviceType type = cluster::test_type();
  // 3×3 over 10 channels at 100·100 places: 900,000 floats a sample.
  EXPECT_EQ(model.workspace_bytes(convolution(3, 10), OpId(0), 1, type), 3600000);
  EXPECT_EQ(model.workspace_bytes(convolution(3, 10), OpId(0), 2, type), 7200000);
  EXPECT_EQ(model.workspace_bytes(convolution(3, 10), OpId(0), 1000, type), Bytes{256} << 20);
  EXPECT_EQ(model.workspace_bytes(convolution(1, 10), OpId(0), 1, type), 0);
  EXPECT_EQ(model.workspace_bytes(mm(10, 10), OpId(0), 1, type), 0);
}

}  // namespace
}  // namespace heterog::cost
