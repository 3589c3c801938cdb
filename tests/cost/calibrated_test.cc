// Which kernels the calibrated model lets an operator run, and that it holds on real graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cluster/builders.h"
#include "cluster/cluster_io.h"
#include "cost/arguments.h"
#include "cost/cost_model.h"
#include "cost/kernel.h"
#include "graph/graph_io.h"

namespace heterog::cost {
namespace {

using cluster::Calibration;
using cluster::DeviceType;
using cluster::ProductKind;
using cluster::TrafficKind;
using graph::Affine;
using graph::int_value;
using graph::tensor_value;
using graph::TensorRole;
using graph::Value;

Value bools(std::initializer_list<bool> values) {
  std::vector<Value> items;
  for (bool value : values) {
    items.emplace_back();
    items.back().kind = Value::Kind::kBool;
    items.back().integer.c = value ? 1 : 0;
  }
  return graph::list_value(std::move(items));
}

// Every kind of kernel at a share of its own, so that times tell them apart.
DeviceType measured_type() {
  DeviceType type = cluster::test_type("measured");
  type.calibration.emplace();
  double share = 0.9;
  for (auto& products : type.calibration->products) {
    for (auto& constants : products) {
      constants = {.share = share, .bandwidth_share = share, .fixed_seconds = 1e-6 / share};
      share *= 0.97;
    }
  }
  for (auto& constants : type.calibration->traffic) {
    constants = {.bandwidth_share = share, .fixed_seconds = 1e-6 / share};
    share *= 0.97;
  }
  return type;
}

class CalibratedTest : public testing::Test {
 protected:
  TensorId tensor(std::vector<Affine> shape, TensorRole role = TensorRole::kInput) {
    return builder_.add_tensor(
        {.name = "t" + std::to_string(tensors_++), .role = role, .shape = std::move(shape)});
  }
  TensorId result(std::vector<Affine> shape) {
    return tensor(std::move(shape), TensorRole::kActivation);
  }
  double seconds(const std::string& type, std::vector<Value> args, std::vector<TensorId> outputs,
                 std::int64_t samples) {
    builder_.add_op({.name = "op", .type = type, .args = std::move(args), .outputs = outputs});
    const graph::ModelGraph graph = std::move(builder_).build("test");
    builder_ = graph::GraphBuilder("next");
    return CalibratedModel().seconds(graph, OpId(0), samples, type_);
  }
  double product(const Product& product) const {
    return product_seconds(product, type_, *type_.calibration);
  }
  double traffic(TrafficKind kind, Bytes bytes) const {
    return traffic_seconds(kind, bytes, type_, *type_.calibration);
  }

  const DeviceType type_ = measured_type();

 private:
  graph::GraphBuilder builder_{"test"};
  int tensors_ = 0;
};

TEST_F(CalibratedTest, MatrixProducts) {
  {
    const TensorId bias = tensor({size(30)}), a = tensor({kBatch, size(20)}),
                   b = tensor({size(20), size(30)}), y = result({kBatch, size(30)});
    EXPECT_DOUBLE_EQ(seconds("aten.addmm.default",
                             {tensor_value(bias), tensor_value(a), tensor_value(b)}, {y}, 7),
                     product({.size = {.m = 7, .n = 30, .k = 20},
                              .bytes = 4 * (30 + 7 * 20 + 20 * 30 + 7 * 30)}));
  }
  {
    const TensorId a = tensor({kBatch, size(5), size(20)}),
                   b = tensor({kBatch, size(20), size(30)}),
                   y = result({kBatch, size(5), size(30)});
    EXPECT_DOUBLE_EQ(seconds("aten.bmm.default", {tensor_value(a), tensor_value(b)}, {y}, 7),
                     product({.size = {.batch = 7, .m = 5, .n = 30, .k = 20},
                              .bytes = 4 * 7 * (5 * 20 + 20 * 30 + 5 * 30)}));
  }
}

// 3 × 3, stride 2, padding 1: 16 × 16 → 8 × 8, 32 → 64 channels.
TEST_F(CalibratedTest, PassesOfAConvolution) {
  const ConvolutionSize shape{.samples = 7,
                              .channels = 32,
                              .filters = 64,
                              .input_height = 16,
                              .input_width = 16,
                              .output_height = 8,
                              .output_width = 8,
                              .taps = 9,
                              .stride_area = 4};
  const Bytes x = 4 * 7 * 32 * 256, w = 4 * 64 * 32 * 9, y = 4 * 7 * 64 * 64;
  const auto pass = [&](ProductKind kind) {
    return product({.kind = kind, .shape = shape, .bytes = x + w + y});
  };
  const auto settings = [](bool transposed) {
    return std::vector<Value>{
        Value{},      ints({2, 2}), ints({1, 1}), ints({1, 1}), int_value(transposed ? 1 : 0),
        ints({0, 0}), int_value(1)};
  };
  const std::vector<Affine> large{kBatch, size(32), size(16), size(16)};
  const std::vector<Affine> small{kBatch, size(64), size(8), size(8)};
  const std::vector<Affine> weight{size(64), size(32), size(3), size(3)};
  const auto backward = [&](std::initializer_list<bool> mask, std::vector<TensorId> results) {
    std::vector<Value> args{tensor_value(tensor(small)), tensor_value(tensor(large)),
                            tensor_value(tensor(weight))};
    for (Value& value : settings(false)) args.push_back(value);
    args.push_back(bools(mask));
    return seconds("aten.convolution_backward.default", args, std::move(results), 7);
  };

  std::vector<Value> args{tensor_value(tensor(large)), tensor_value(tensor(weight))};
  for (Value& value : settings(false)) args.push_back(value);
  EXPECT_DOUBLE_EQ(seconds("aten.convolution.default", args, {result(small)}, 7),
                   pass(ProductKind::kConvolutionForward));
  const double to_input = backward({true, false, false}, {result(large), TensorId(), TensorId()});
  EXPECT_DOUBLE_EQ(to_input, pass(ProductKind::kConvolutionInputGradient));
  const double to_weight = backward({false, true, false}, {TensorId(), result(weight), TensorId()});
  EXPECT_DOUBLE_EQ(to_weight, pass(ProductKind::kConvolutionWeightGradient));
  EXPECT_DOUBLE_EQ(
      backward({true, true, true}, {result(large), result(weight), result({size(64)})}),
      to_input + to_weight + traffic(TrafficKind::kReduction, y));
  // Transposed, it is the input gradient of the same convolution.
  args = {tensor_value(tensor(small)), tensor_value(tensor(weight))};
  for (Value& value : settings(true)) args.push_back(value);
  EXPECT_DOUBLE_EQ(seconds("aten.convolution.default", args, {result(large)}, 7), to_input);
}

TEST_F(CalibratedTest, KindsOfTraffic) {
  const auto rows = [&](const std::string& type) {
    const TensorId x = tensor({kBatch, size(100)}), y = result({kBatch, size(100)});
    return seconds(type, {tensor_value(x)}, {y}, 1000);
  };
  EXPECT_DOUBLE_EQ(rows("aten.relu.default"), traffic(TrafficKind::kElementwise, 800'000));
  EXPECT_DOUBLE_EQ(rows("aten._softmax.default"), traffic(TrafficKind::kSoftmax, 800'000));
  EXPECT_DOUBLE_EQ(rows("aten.native_layer_norm.default"),
                   traffic(TrafficKind::kLayerNorm, 800'000));
  EXPECT_DOUBLE_EQ(rows("aten.native_batch_norm.default"),
                   traffic(TrafficKind::kBatchNorm, 1'200'000));
  EXPECT_DOUBLE_EQ(rows("aten.clone.default"), traffic(TrafficKind::kCopy, 800'000));
}

// PyTorch multiplies gradient and result first, into a tensor that a second kernel reads.
TEST_F(CalibratedTest, SoftmaxBackwardIsTwoKernels) {
  const auto backward = [&](const std::string& type) {
    const TensorId g = tensor({kBatch, size(100)}), y = tensor({kBatch, size(100)}),
                   x = result({kBatch, size(100)});
    return seconds(type, {tensor_value(g), tensor_value(y)}, {x}, 1000);
  };
  EXPECT_DOUBLE_EQ(
      backward("aten._softmax_backward_data.default"),
      traffic(TrafficKind::kElementwise, 1'200'000) + traffic(TrafficKind::kSoftmax, 1'200'000));
  EXPECT_DOUBLE_EQ(backward("aten._log_softmax_backward_data.default"),
                   traffic(TrafficKind::kSoftmax, 1'200'000));
}

// Channels-last activations need no copies on tensor cores.
TEST(Calibrated, TensorCoreConvolutionsOfContiguousTensorsPayForCopies) {
  DeviceType type = measured_type();
  type.tf32_flops_per_second = 1e14;
  const auto seconds = [&](bool input_last, bool output_last) {
    graph::GraphBuilder builder("test");
    const auto tensor = [&](const char* name, std::vector<Affine> shape, bool last) {
      return builder.add_tensor({.name = name,
                                 .role = TensorRole::kInput,
                                 .shape = std::move(shape),
                                 .channels_last = last});
    };
    const TensorId x = tensor("x", {kBatch, size(64), size(8), size(8)}, input_last),
                   w = tensor("w", {size(32), size(64), size(1), size(1)}, false);
    const TensorId y = builder.add_tensor({.name = "y",
                                           .role = TensorRole::kActivation,
                                           .shape = {kBatch, size(32), size(8), size(8)},
                                           .channels_last = output_last});
    builder.add_op({.name = "op",
                    .type = "aten.convolution.default",
                    .args = {tensor_value(x), tensor_value(w), Value{}, ints({1, 1}), ints({0, 0}),
                             ints({1, 1}), int_value(0), ints({0, 0}), int_value(1)},
                    .outputs = {y}});
    return CalibratedModel().seconds(std::move(builder).build("test"), OpId(0), 100, type);
  };
  const double rate =
      type.memory_bytes_per_second *
      type.calibration->traffic[static_cast<int>(TrafficKind::kCopy)].bandwidth_share;
  const double x = 2.0 * 4 * 100 * 64 * 64 / rate, y = 2.0 * 4 * 100 * 32 * 64 / rate;
  EXPECT_NEAR(seconds(false, false) - seconds(true, true), x + y, 1e-12);
  EXPECT_NEAR(seconds(true, false) - seconds(true, true), y, 1e-12);
}

TEST(Calibrated, DevicesWithoutACalibrationFollowTheRoofline) {
  const graph::ModelGraph graph = graph::read_graph("models/resnet50-tiny.json.gz");
  const DeviceType type = cluster::test_type();
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    EXPECT_EQ(CalibratedModel().seconds(graph, op, 8, type),
              RooflineModel().seconds(graph, op, 8, type));
  }
}

class CalibratedGraphs : public testing::TestWithParam<std::string> {};

// What a planner needs: times that are finite, and never fall as a slice grows.
TEST_P(CalibratedGraphs, MoreSamplesNeverTakeLessOnAnyDevice) {
  const graph::ModelGraph graph = graph::read_graph("models/" + GetParam() + ".json.gz");
  const cluster::DeviceDatabase devices = cluster::read_devices("configs/devices.json");
  const CalibratedModel model;
  for (const auto& [name, type] : devices) {
    for (OpId op : graph.op_ids()) {
      if (graph.op(op).alias) continue;
      // Refused where costs are made.
      const OpWork work = op_work(graph, op, 1);
      if (type.bf16_flops_per_second == 0 && work.flop > 0 &&
          work.dtype == graph::DType::kBFloat16) {
        continue;
      }
      double before = 0;
      for (std::int64_t samples : {1, 2, 3, 4, 6, 7, 8, 12, 16, 21, 32, 33, 64}) {
        const double seconds = model.seconds(graph, op, samples, type);
        ASSERT_TRUE(std::isfinite(seconds) && seconds > 0) << name << ", " << graph.op(op).name;
        ASSERT_GE(seconds, before * (1 - 1e-12))
            << name << ", " << graph.op(op).name << " at " << samples;
        before = seconds;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, CalibratedGraphs,
                         testing::Values("resnet50-tiny", "bert_large24-tiny", "mobilenet_v2-tiny",
                                         "gnmt4-tiny", "tensor_holography-tiny",
                                         "llama70b_qlora-tiny"),
                         [](const auto& info) {
                           std::string name = info.param.substr(0, info.param.find('-'));
                           return name;
                         });

// x [B, 3, 128] in bfloat16 by a weight [256, 128] of 4 bits: a kernel that unpacks it, and a
// product of half precision by what that wrote.
TEST(Calibrated, PackedWeightsAreUnpackedFirst) {
  graph::GraphBuilder builder("packed");
  const auto add = [&](const std::string& name, graph::DType dtype, std::vector<Affine> shape) {
    return builder.add_tensor(
        {.name = name, .role = TensorRole::kInput, .dtype = dtype, .shape = std::move(shape)});
  };
  const TensorId x = add("x", graph::DType::kBFloat16, {kBatch, size(3), size(128)});
  const TensorId packed = add("packed", graph::DType::kUInt8, {size(16384)});
  const TensorId scales = add("scales", graph::DType::kFloat32, {size(512)});
  const TensorId out = builder.add_tensor({.name = "out",
                                           .role = TensorRole::kActivation,
                                           .dtype = graph::DType::kBFloat16,
                                           .shape = {kBatch, size(3), size(256)}});
  const TensorId loss = builder.add_tensor(
      {.name = "loss", .role = TensorRole::kOutput, .dtype = graph::DType::kBFloat16, .shape = {}});
  builder.add_op(
      {.name = "product",
       .type = "heterog.linear4bit.default",
       .args = {tensor_value(x), tensor_value(packed), tensor_value(scales), int_value(256)},
       .outputs = {out}});
  builder.add_op(
      {.name = "sum", .type = "aten.sum.default", .args = {tensor_value(out)}, .outputs = {loss}});
  builder.set_loss(loss);
  const graph::ModelGraph graph = std::move(builder).build("test");
  const DeviceType type = measured_type();
  const Bytes weight = 2 * 128 * 256;
  const double unpacking =
      traffic_seconds(TrafficKind::kElementwise, 16384 + 4 * 512 + weight, type, *type.calibration);
  const double product = product_seconds({.dtype = graph::DType::kBFloat16,
                                          .size = {.batch = 1, .m = 4 * 3, .n = 256, .k = 128},
                                          .bytes = 2 * 12 * 128 + weight + 2 * 12 * 256},
                                         type, *type.calibration);
  EXPECT_DOUBLE_EQ(CalibratedModel().seconds(graph, OpId(0), 4, type), unpacking + product);
}

// Of [B, 2, 5, 4] and [B, 2, 7, 4], forward and backward.
double seconds_of_attention(OpId op, double rate, const std::string& device) {
  graph::GraphBuilder builder("attention");
  const auto add = [&](const std::string& name, std::int64_t rows, TensorRole role) {
    return builder.add_tensor(
        {.name = name, .role = role, .shape = {kBatch, size(2), size(rows), size(4)}});
  };
  const auto input = TensorRole::kInput, made = TensorRole::kActivation;
  const TensorId q = add("q", 5, input), k = add("k", 7, input), v = add("v", 7, input),
                 g = add("g", 5, input);
  const TensorId out = add("out", 5, made);
  const TensorId sums = builder.add_tensor({.name = "sums", .shape = {kBatch, size(2), size(5)}});
  const TensorId dq = add("dq", 5, made), dk = add("dk", 7, made), dv = add("dv", 7, made);
  const TensorId loss =
      builder.add_tensor({.name = "loss", .role = TensorRole::kOutput, .shape = {}});
  const std::string type = "aten._scaled_dot_product_flash_attention_for_cpu";
  const OpId forward = builder.add_op(
      {.name = "attend",
       .type = type + ".default",
       .args = {tensor_value(q), tensor_value(k), tensor_value(v), graph::float_value(rate)},
       .outputs = {out, sums}});
  builder.add_op({.name = "attend_back",
                  .type = type + "_backward.default",
                  .phase = graph::Phase::kBackward,
                  .args = {tensor_value(g), tensor_value(q), tensor_value(k), tensor_value(v),
                           tensor_value(out), tensor_value(sums), graph::float_value(rate)},
                  .outputs = {dq, dk, dv},
                  .forward = forward});
  builder.add_op(
      {.name = "sum", .type = "aten.sum.default", .args = {tensor_value(out)}, .outputs = {loss}});
  builder.set_loss(loss);
  const graph::ModelGraph graph = std::move(builder).build("test");
  DeviceType type_of_device = measured_type();
  type_of_device.name = device;
  return CalibratedModel().seconds(graph, op, 3, type_of_device);
}

// 70 weights a sample, of which a GPU writes products and what is used of them and reads them
// again: forward 4 times 4 bytes; backward with the gradients of both, that of the product read
// twice.
TEST(Calibrated, AttentionThatDropsWritesItsWeights) {
  const auto product = [](double products, std::int64_t numbers) {
    return product_seconds(
        {.size = {.batch = 3 * 2 * products, .m = 5, .n = 4, .k = 7}, .bytes = 3 * numbers * 4},
        measured_type(), *measured_type().calibration);
  };
  const auto moved = [](std::int64_t times) {
    return traffic_seconds(cluster::TrafficKind::kElementwise, 3 * 70 * times * 4, measured_type(),
                           *measured_type().calibration);
  };
  const OpId forward(0), backward(1);
  const std::int64_t given = 40 + 56 + 56 + 40 + 10, gradients = given + 40 + 40 + 56 + 56;
  EXPECT_DOUBLE_EQ(seconds_of_attention(forward, 0, "GPU"), product(2, given));
  EXPECT_DOUBLE_EQ(seconds_of_attention(forward, 0.1, "GPU"), product(2, given) + moved(4));
  EXPECT_DOUBLE_EQ(seconds_of_attention(forward, 0.1, "CPU"), product(2, given));
  EXPECT_DOUBLE_EQ(seconds_of_attention(backward, 0, "GPU"), product(5, gradients));
  EXPECT_DOUBLE_EQ(seconds_of_attention(backward, 0.1, "GPU"), product(5, gradients) + moved(9));
  EXPECT_DOUBLE_EQ(seconds_of_attention(backward, 0.1, "CPU"), product(5, gradients));
}

}  // namespace
}  // namespace heterog::cost
