// Arithmetic and traffic of ATen operators, each derived by hand from its shapes.
#include <gtest/gtest.h>

#include <optional>

#include "cost/arguments.h"
#include "cost/cost_model.h"

namespace heterog::cost {
namespace {

using cluster::OpClass;
using graph::Affine;
using graph::DType;
using graph::GraphBuilder;
using graph::int_value;
using graph::list_value;
using graph::Phase;
using graph::tensor_value;
using graph::TensorRole;
using graph::Value;

Value bool_value(bool value) {
  Value result;
  result.kind = Value::Kind::kBool;
  result.integer.c = value ? 1 : 0;
  return result;
}

// A graph of one op under test (the last one), built tensor by tensor.
class OpWorkTest : public testing::Test {
 protected:
  TensorId input(std::vector<Affine> shape, DType dtype = DType::kFloat32,
                 TensorRole role = TensorRole::kInput) {
    return add(std::move(shape), dtype, role);
  }
  TensorId result(std::vector<Affine> shape, DType dtype = DType::kFloat32) {
    return add(std::move(shape), dtype, TensorRole::kActivation);
  }
  void op(const std::string& type, std::vector<Value> args, std::vector<TensorId> outputs,
          Phase phase = Phase::kForward) {
    builder_.add_op({.name = "op" + std::to_string(ops_++),
                     .type = type,
                     .phase = phase,
                     .args = std::move(args),
                     .outputs = std::move(outputs)});
  }
  OpWork work(std::int64_t samples) {
    if (!graph_) graph_.emplace(std::move(builder_).build("test"));
    return op_work(*graph_, OpId(graph_->op_count() - 1), samples);
  }
  Bytes weights(std::int64_t samples, const std::string& device = "CPU") {
    if (!graph_) graph_.emplace(std::move(builder_).build("test"));
    return weights_bytes(*graph_, OpId(graph_->op_count() - 1), samples, {.name = device});
  }
  Bytes unfold(std::int64_t samples) {
    if (!graph_) graph_.emplace(std::move(builder_).build("test"));
    return unfold_bytes(*graph_, OpId(graph_->op_count() - 1), samples);
  }

 private:
  TensorId add(std::vector<Affine> shape, DType dtype, TensorRole role) {
    return builder_.add_tensor({.name = "t" + std::to_string(tensors_++),
                                .role = role,
                                .dtype = dtype,
                                .shape = std::move(shape)});
  }
  GraphBuilder builder_{"test"};
  std::optional<graph::ModelGraph> graph_;
  int tensors_ = 0, ops_ = 0;
};

TEST_F(OpWorkTest, Mm) {
  const TensorId a = input({kBatch, size(32)}), b = input({size(32), size(10)});
  op("aten.mm.default", {tensor_value(a), tensor_value(b)}, {result({kBatch, size(10)})});
  // 4 samples: 2·4·10·32 FLOP; 4·32 + 32·10 + 4·10 floats.
  EXPECT_EQ(work(4).op_class, OpClass::kMatMul);
  EXPECT_EQ(work(4).flop, 2560);
  EXPECT_EQ(work(4).bytes, 4 * (128 + 320 + 40));
  EXPECT_EQ(work(4).dtype, DType::kFloat32);
  // Half the samples: half the arithmetic, but the weight is read all the same.
  EXPECT_EQ(work(2).flop, 1280);
  EXPECT_EQ(work(2).bytes, 4 * (64 + 320 + 20));
}

// x [B, 3, 128] by a weight [256, 128], two numbers a byte and a scale each 64.
TEST_F(OpWorkTest, ProductsByAPackedWeightUnpackIt) {
  const TensorId x = input({kBatch, size(3), size(128)}, DType::kBFloat16);
  const TensorId packed = input({size(128 * 256 / 2)}, DType::kUInt8),
                 scales = input({size(128 * 256 / 64)});
  op("heterog.linear4bit.default",
     {tensor_value(x), tensor_value(packed), tensor_value(scales), int_value(256)},
     {result({kBatch, size(3), size(256)}, DType::kBFloat16)});
  EXPECT_EQ(work(4).op_class, OpClass::kMatMul);
  EXPECT_EQ(work(4).dtype, DType::kBFloat16);
  EXPECT_EQ(work(4).flop, 2. * 4 * 3 * 128 * 256);
  // Operands, the unpacked weight written and read, the result.
  EXPECT_EQ(work(4).bytes, 2 * 4 * 3 * 128 + 16384 + 4 * 512 + 2 * (2 * 32768) + 2 * 4 * 3 * 256);
  EXPECT_EQ(weights(4), 2 * 32768);
}

TEST_F(OpWorkTest, OtherProductsUnpackNothing) {
  const TensorId a = input({kBatch, size(32)}), b = input({size(32), size(10)});
  op("aten.mm.default", {tensor_value(a), tensor_value(b)}, {result({kBatch, size(10)})});
  EXPECT_EQ(weights(4), 0);
}

TEST_F(OpWorkTest, WeightGradientOfMmSumsOverTheBatch) {
  // xᵀ·g: [32, B]·[B, 10], so the inner dimension is the batch.
  const TensorId a = input({size(32), kBatch}), b = input({kBatch, size(10)});
  op("aten.mm.default", {tensor_value(a), tensor_value(b)}, {result({size(32), size(10)})});
  EXPECT_EQ(work(5).flop, 2 * 32 * 10 * 5);
}

TEST_F(OpWorkTest, AddmmReadsItsBiasToo) {
  const TensorId bias = input({size(10)}), a = input({kBatch, size(32)}),
                 b = input({size(32), size(10)});
  op("aten.addmm.default", {tensor_value(bias), tensor_value(a), tensor_value(b)},
     {result({kBatch, size(10)})});
  EXPECT_EQ(work(4).flop, 2560);
  EXPECT_EQ(work(4).bytes, 4 * (10 + 128 + 320 + 40));
}

TEST_F(OpWorkTest, BmmInHalfPrecision) {
  const TensorId a = input({{12, 0}, size(7), size(64)}, DType::kBFloat16);
  const TensorId b = input({{12, 0}, size(64), size(5)}, DType::kBFloat16);
  op("aten.bmm.default", {tensor_value(a), tensor_value(b)},
     {result({{12, 0}, size(7), size(5)}, DType::kBFloat16)});
  // 2 samples: 24 matrices of 2·7·5·64 FLOP.
  EXPECT_EQ(work(2).flop, 24 * 4480);
  EXPECT_EQ(work(2).bytes, 2 * 24 * (448 + 320 + 35));
  EXPECT_EQ(work(2).dtype, DType::kBFloat16);
}

TEST_F(OpWorkTest, BaddbmmMultipliesItsSecondAndThirdOperand) {
  const TensorId c = input({kBatch, size(3), size(4)}), a = input({kBatch, size(3), size(9)}),
                 b = input({kBatch, size(9), size(4)});
  op("aten.baddbmm.default", {tensor_value(c), tensor_value(a), tensor_value(b)},
     {result({kBatch, size(3), size(4)})});
  EXPECT_EQ(work(1).flop, 2 * 3 * 4 * 9);
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
std::vector<Value> convolution_args(TensorId input, TensorId weight, std::int64_t stride,
                                    std::int64_t groups, bool transposed = false) {
  return {tensor_value(input),    tensor_value(weight), Value{},
          ints({stride, stride}), ints({1, 1}),         ints({1, 1}),
          bool_value(transposed), ints({0, 0}),         int_value(groups)};
}

TEST_F(OpWorkTest, Convolution3x3) {
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(32), size(16), size(3), size(3)});
  op("aten.convolution.default", convolution_args(x, w, 1, 1),
     {result({kBatch, size(32), size(8), size(8)})});
  // 2 samples: 2·32·8·8 outputs, each 16·9 multiply-adds.
  EXPECT_EQ(work(2).op_class, OpClass::kConvolution3x3);
  EXPECT_EQ(work(2).flop, 2.0 * 4096 * 144);
  EXPECT_EQ(work(2).bytes, 4 * (2 * 1024 + 32 * 144 + 4096));
  // 2 · 64 positions of the kernel, 16 · 9 values each.
  EXPECT_EQ(unfold(2), 4 * 2 * 64 * 144);
}

TEST_F(OpWorkTest, StridedConvolutionIsOfTheOrdinaryClass) {
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(32), size(16), size(3), size(3)});
  op("aten.convolution.default", convolution_args(x, w, 2, 1),
     {result({kBatch, size(32), size(4), size(4)})});
  EXPECT_EQ(work(1).op_class, OpClass::kConvolution);
  EXPECT_EQ(work(1).flop, 2.0 * 512 * 144);
}

TEST_F(OpWorkTest, PointwiseConvolutionUnfoldsNothing) {
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(32), size(16), size(1), size(1)});
  op("aten.convolution.default", convolution_args(x, w, 1, 1),
     {result({kBatch, size(32), size(8), size(8)})});
  EXPECT_EQ(work(1).op_class, OpClass::kConvolution);
  EXPECT_EQ(work(1).flop, 2.0 * 2048 * 16);
  EXPECT_EQ(unfold(1), 0);
}

TEST_F(OpWorkTest, DepthwiseConvolution) {
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(16), size(1), size(3), size(3)});
  op("aten.convolution.default", convolution_args(x, w, 1, 16),
     {result({kBatch, size(16), size(8), size(8)})});
  EXPECT_EQ(work(1).op_class, OpClass::kDepthwiseConvolution);
  EXPECT_EQ(work(1).flop, 2.0 * 1024 * 9);
}

TEST_F(OpWorkTest, GroupedConvolutionIsNotDepthwise) {
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(32), size(4), size(3), size(3)});
  op("aten.convolution.default", convolution_args(x, w, 1, 4),
     {result({kBatch, size(32), size(8), size(8)})});
  EXPECT_EQ(work(1).op_class, OpClass::kConvolution);
  EXPECT_EQ(work(1).flop, 2.0 * 2048 * 36);
}

TEST_F(OpWorkTest, TransposedConvolutionSweepsItsInput) {
  // Weight [in, out, 2, 2], stride 2: each of 16·4·4 inputs meets 8·2·2 weights.
  const TensorId x = input({kBatch, size(16), size(4), size(4)});
  const TensorId w = input({size(16), size(8), size(2), size(2)});
  op("aten.convolution.default", convolution_args(x, w, 2, 1, true),
     {result({kBatch, size(8), size(8), size(8)})});
  EXPECT_EQ(work(1).op_class, OpClass::kConvolution);
  EXPECT_EQ(work(1).flop, 2.0 * 256 * 32);
}

TEST_F(OpWorkTest, ConvolutionBackwardCostsAForwardForEachGradient) {
  const TensorId g = input({kBatch, size(32), size(8), size(8)});
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(32), size(16), size(3), size(3)});
  auto args = convolution_args(x, w, 1, 1);
  args.insert(args.begin(), tensor_value(g));
  args[3] = ints({32});
  args.push_back(list_value({bool_value(true), bool_value(true), bool_value(true)}));
  op("aten.convolution_backward.default", args,
     {result({kBatch, size(16), size(8), size(8)}), result({size(32), size(16), size(3), size(3)}),
      result({size(32)})},
     Phase::kBackward);
  const double forward = 2.0 * 2048 * 144;  // one sample
  EXPECT_EQ(work(1).op_class, OpClass::kConvolution3x3);
  EXPECT_EQ(work(1).flop, 2 * forward);
  // Input's gradient: g, w, result; weight's: g, x, result; bias's: g, result. In floats:
  EXPECT_EQ(work(1).bytes, 4 * ((2048 + 4608 + 1024) + (2048 + 1024 + 4608) + (2048 + 32)));
}

TEST_F(OpWorkTest, FirstLayerNeedsNoGradientOfItsInput) {
  const TensorId g = input({kBatch, size(32), size(8), size(8)});
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(32), size(16), size(3), size(3)});
  auto args = convolution_args(x, w, 1, 1);
  args.insert(args.begin(), tensor_value(g));
  args[3] = Value{};
  args.push_back(list_value({bool_value(false), bool_value(true), bool_value(false)}));
  op("aten.convolution_backward.default", args,
     {TensorId(), result({size(32), size(16), size(3), size(3)}), TensorId()}, Phase::kBackward);
  EXPECT_EQ(work(1).flop, 2.0 * 2048 * 144);
  EXPECT_EQ(work(1).bytes, 4 * (2048 + 1024 + 4608));
}

TEST_F(OpWorkTest, EmbeddingReadsTheRowsNotTheTable) {
  const TensorId table = input({size(30000), size(64)}),
                 rows = input({kBatch, size(9)}, DType::kInt64);
  op("aten.embedding.default", {tensor_value(table), tensor_value(rows)},
     {result({kBatch, size(9), size(64)})});
  // 2 samples: 18 indices of 8 bytes, 18 rows read and written.
  EXPECT_EQ(work(2).op_class, OpClass::kEmbedding);
  EXPECT_EQ(work(2).bytes, 18 * 8 + 2 * 18 * 64 * 4);
  EXPECT_EQ(work(2).flop, 0);
  EXPECT_EQ(work(2).dtype, DType::kFloat32);
}

TEST_F(OpWorkTest, EmbeddingGradientWritesTheWholeTable) {
  const TensorId g = input({kBatch, size(9), size(64)}),
                 rows = input({kBatch, size(9)}, DType::kInt64);
  op("aten.embedding_dense_backward.default",
     {tensor_value(g), tensor_value(rows), int_value(30000), int_value(-1), bool_value(false)},
     {result({size(30000), size(64)})}, Phase::kBackward);
  // Clear 30000·64 floats; read 18 indices and 18 rows, and read and write these rows of the table.
  EXPECT_EQ(work(2).bytes, 30000 * 64 * 4 + 18 * 8 + 3 * 18 * 64 * 4);
}

TEST_F(OpWorkTest, BatchNormReadsItsInputTwice) {
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  const TensorId w = input({size(16)}), b = input({size(16)});
  op("aten.native_batch_norm.default", {tensor_value(x), tensor_value(w), tensor_value(b)},
     {result({kBatch, size(16), size(8), size(8)}), result({size(16)}), result({size(16)})});
  EXPECT_EQ(work(2).op_class, OpClass::kNormalization);
  EXPECT_EQ(work(2).bytes, 4 * (3 * 2048 + 4 * 16));
}

TEST_F(OpWorkTest, BatchNormBackwardReadsGradientAndInputTwice) {
  const TensorId g = input({kBatch, size(16), size(8), size(8)});
  const TensorId x = input({kBatch, size(16), size(8), size(8)});
  op("aten.native_batch_norm_backward.default", {tensor_value(g), tensor_value(x)},
     {result({kBatch, size(16), size(8), size(8)})}, Phase::kBackward);
  EXPECT_EQ(work(1).bytes, 4 * 5 * 1024);
}

TEST_F(OpWorkTest, Elementwise) {
  const TensorId x = input({kBatch, size(100)}), y = input({kBatch, size(100)});
  op("aten.add.Tensor", {tensor_value(x), tensor_value(y)}, {result({kBatch, size(100)})});
  EXPECT_EQ(work(3).op_class, OpClass::kElementwise);
  EXPECT_EQ(work(3).bytes, 3 * 300 * 4);
  EXPECT_EQ(work(3).flop, 0);
}

TEST_F(OpWorkTest, AnOperandThatStandsTwiceIsReadOnce) {
  const TensorId x = input({kBatch, size(100)});
  op("aten.mul.Tensor", {tensor_value(x), tensor_value(x)}, {result({kBatch, size(100)})});
  EXPECT_EQ(work(1).bytes, 2 * 100 * 4);
}

TEST_F(OpWorkTest, AnExpandedOperandCostsItsBase) {
  const TensorId bias = input({size(100)}), x = input({kBatch, size(100)});
  const TensorId wide = result({kBatch, size(100)});
  op("aten.expand.default",
     {tensor_value(bias), list_value({graph::size_value(1, 0), int_value(100)})}, {wide});
  op("aten.add.Tensor", {tensor_value(x), tensor_value(wide)}, {result({kBatch, size(100)})});
  EXPECT_EQ(work(8).bytes, 4 * (800 + 100 + 800));
}

TEST_F(OpWorkTest, ClassesOfTheRest) {
  struct Case {
    const char* type;
    OpClass op_class;
  };
  for (const Case& expected :
       {Case{"aten._softmax.default", OpClass::kSoftmax},
        Case{"aten._log_softmax_backward_data.default", OpClass::kSoftmax},
        Case{"aten.sum.dim_IntList", OpClass::kReduction},
        Case{"aten.mean.dim", OpClass::kReduction},
        Case{"aten.avg_pool2d.default", OpClass::kPooling},
        Case{"aten.clone.default", OpClass::kCopy}, Case{"aten.cat.default", OpClass::kCopy},
        Case{"aten.native_layer_norm.default", OpClass::kNormalization},
        Case{"aten.index.Tensor", OpClass::kEmbedding},
        Case{"aten.gelu.default", OpClass::kElementwise},
        Case{"aten.never_heard_of.default", OpClass::kElementwise}}) {
    GraphBuilder builder("test");
    const TensorId x =
        builder.add_tensor({.name = "x", .role = TensorRole::kInput, .shape = {kBatch, size(4)}});
    const TensorId y = builder.add_tensor({.name = "y", .shape = {kBatch, size(4)}});
    builder.add_op(
        {.name = "op", .type = expected.type, .args = {tensor_value(x)}, .outputs = {y}});
    const graph::ModelGraph g = std::move(builder).build("test");
    EXPECT_EQ(op_work(g, OpId(0), 1).op_class, expected.op_class) << expected.type;
  }
}

TEST_F(OpWorkTest, UpdatesHaveTheirOwnClass) {
  const TensorId p = input({size(50)}, DType::kFloat32, TensorRole::kParameter);
  op("aten.mul.Tensor", {tensor_value(p), int_value(2)}, {result({size(50)})}, Phase::kUpdate);
  EXPECT_EQ(work(1).op_class, OpClass::kOptimizer);
  EXPECT_EQ(work(7).bytes, 2 * 50 * 4);
}

TEST_F(OpWorkTest, PoolingBackwardDoesNotReadItsForwardsInput) {
  const TensorId g = input({kBatch, size(4)}), x = input({kBatch, size(16)}),
                 indices = input({kBatch, size(4)}, DType::kInt64);
  op("aten.max_pool2d_with_indices_backward.default",
     {tensor_value(g), tensor_value(x), ints({2, 2}), ints({2, 2}), ints({0, 0}), ints({1, 1}),
      bool_value(false), tensor_value(indices)},
     {result({kBatch, size(16)})}, Phase::kBackward);
  EXPECT_EQ(work(1).bytes, 4 * 4 + 4 * 8 + 16 * 4);
}

TEST_F(OpWorkTest, LossesTouchOneElementARow) {
  const TensorId x = input({kBatch, size(1000)}), target = input({kBatch}, DType::kInt64);
  op("aten.nll_loss_forward.default", {tensor_value(x), tensor_value(target)},
     {result({}), result({})});
  // 4 samples: index and element of at most its size, and two scalars.
  EXPECT_EQ(work(4).bytes, 2 * 4 * 8 + 2 * 4);
}

TEST_F(OpWorkTest, FillingReadsNothing) {
  const TensorId x = input({kBatch, size(10)});
  op("aten.zeros_like.default", {tensor_value(x)}, {result({kBatch, size(10)})});
  EXPECT_EQ(work(2).bytes, 2 * 10 * 4);
}

// 2 heads of 5 queries and 7 keys, 4 wide: a product is 2 · 2 · 5 · 7 · 4 = 560 a sample.
TEST_F(OpWorkTest, AttentionIsTwoProductsThatLeaveNoScores) {
  const TensorId q = input({kBatch, size(2), size(5), size(4)});
  const TensorId k = input({kBatch, size(2), size(7), size(4)});
  const TensorId v = input({kBatch, size(2), size(7), size(4)});
  const TensorId out = result({kBatch, size(2), size(5), size(4)});
  const TensorId sums = result({kBatch, size(2), size(5)});
  op("aten._scaled_dot_product_flash_attention_for_cpu.default",
     {tensor_value(q), tensor_value(k), tensor_value(v), graph::float_value(0.0),
      bool_value(false)},
     {out, sums});
  const OpWork work = this->work(3);
  EXPECT_EQ(work.op_class, OpClass::kMatMul);
  EXPECT_DOUBLE_EQ(work.flop, 3 * 2 * 560);
  // Query and result of 40 elements, key and value of 56, sums of 10.
  EXPECT_EQ(work.bytes, 3 * (40 + 56 + 56 + 40 + 10) * 4);
  EXPECT_EQ(weights(3), 0);
}

TEST_F(OpWorkTest, AttentionsGradientIsFiveProductsHalfOfThemUnderACausalMask) {
  const std::vector<Affine> whole = {kBatch, size(2), size(5), size(4)};
  std::vector<Value> args;
  for (int i = 0; i < 5; ++i) args.push_back(tensor_value(input(whole)));
  args.push_back(tensor_value(input({kBatch, size(2), size(5)})));
  args.push_back(graph::float_value(0.1));
  args.push_back(bool_value(true));
  op("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", args,
     {result(whole), result(whole), result(whole)});
  EXPECT_DOUBLE_EQ(work(3).flop, 3 * 5 * 400 / 2.0);
  // It drops weights, so it writes them down: four times the 2 · 5 · 5 of a sample, in single
  // precision, and which are kept, of as many samples as 16 MiB hold.
  EXPECT_EQ(weights(3), 3 * 50 * (4 * 4 + 1));
  EXPECT_EQ(weights(1 << 20), (Bytes{16} << 20) / 850 * 850);
  // On a GPU products and their gradients in single precision, and what is used of them with its
  // gradient, in the operands' type: 512 MiB.
  EXPECT_EQ(weights(3, "V100-PCIE-16GB"), 3 * 50 * 4 * 4);
  EXPECT_EQ(weights(1 << 22, "V100-PCIE-16GB"), (Bytes{512} << 20) / 800 * 800);
}

}  // namespace
}  // namespace heterog::cost
