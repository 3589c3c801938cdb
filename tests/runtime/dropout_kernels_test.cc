// The kernels of dropout.cu, run on the CPU: masks and products have the bits of the CPU's way, on
// whatever grid.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/fake_device.h"
#include "runtime/gpu/dropout_on_gpu.h"
#include "runtime/gpu/gpu_kernels.h"
#include "runtime/host_kernels.h"
#include "runtime/kernels/draw.h"
#include "runtime/kernels/random.h"
#include "support/graphs.h"

namespace heterog::runtime {
namespace {

constexpr RandomStream kDropoutStream{7, 3, OpId(11)};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

TEST(DropoutKernels, RoundNumbersOf16BitsAsPyTorchDoes) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor all = at::arange(1 << 16, at::kInt).to(at::kShort).view(type);
    const at::Tensor wide = all.to(at::kFloat);
    std::vector<float> values = {65504.f, 65519.99f,     65520.f,       65536.f, 3.4e38f,
                                 1e-45f,  2.9802322e-8f, 2.9802326e-8f, 6.1e-5f, kInfinity};
    for (int i = 0; i < 1 << 16; ++i) {
      const float expected = wide.data_ptr<float>()[i];
      const float found = on_gpu::wide_of(type, static_cast<unsigned short>(i));
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(found) : std::memcmp(&found, &expected, 4) == 0)
          << type << " " << i;
      // The number, half way to the next one, and what is around both.
      const float next = wide.data_ptr<float>()[(i + 1) % (1 << 16)];
      for (const float value : {expected, expected / 2 + next / 2}) {
        values.insert(values.end(),
                      {value, std::nextafter(value, kInfinity), std::nextafter(value, -kInfinity)});
      }
    }
    const at::Tensor given = at::tensor(values, at::kFloat);
    const at::Tensor rounded = given.to(type);
    const auto* bits = static_cast<const std::uint16_t*>(rounded.const_data_ptr());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const unsigned short found = on_gpu::bits_of(type, values[i]);
      ASSERT_TRUE(std::isnan(values[i]) ? std::isnan(on_gpu::wide_of(type, found))
                                        : found == bits[i])
          << type << " " << values[i];
    }
  }
}

// A slice along any dimension, of a size that is no multiple of anything.
struct Slice {
  std::vector<std::int64_t> sizes;
  Cut cut;
};
std::vector<Slice> slices() {
  std::vector<Slice> all = {{{1}, {}}, {{257}, {}}, {{3, 5, 77}, {}}};
  for (const auto& [dim, outer, begin, count] :
       {std::tuple{0, 1, 0, 8}, {0, 1, 3, 5}, {1, 3, 2, 4}, {2, 1, 7, 1}}) {
    std::vector<std::int64_t> sizes = {5, 4, 31};
    sizes[static_cast<std::size_t>(dim)] = 2 * outer * count;
    all.push_back({sizes, {static_cast<std::uint8_t>(dim), outer, 8, begin, count}});
  }
  return all;
}

const std::array<Grid, 3> kGrids = {{{1, 1}, {2, 3}, {4, 50}}};

TEST(DropoutKernels, KeepWhatTheCpuKeeps) {
  const on_gpu::HostKernels kernels;
  for (const Slice& slice : slices()) {
    const at::Tensor expected = keep_mask(kDropoutStream, 0.4, slice.sizes, slice.cut, at::kCPU);
    for (const Grid& grid : kGrids) {
      on_gpu::set_grid(grid);
      const at::Tensor kept = expected.logical_not();
      ASSERT_TRUE(fill_kept_on_gpu(kept, keep_rule(kDropoutStream, 0.4, slice.sizes, slice.cut)));
      EXPECT_TRUE(kept.equal(expected)) << expected.sizes() << " " << grid.x;
    }
  }
}

TEST(DropoutKernels, MakeProductsWithTheBitsOfTheCpu) {
  at::manual_seed(3);
  const on_gpu::HostKernels kernels;
  const double rate = 0.3, scale = 1 / (1 - rate);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const Slice& slice : slices()) {
      at::Tensor x = at::randn(slice.sizes, at::kDouble);
      x = x.mul(at::exp2(at::randint(-30, 20, slice.sizes, at::kDouble))).to(type);
      x.flatten()[0] = kInfinity;  // ∞ · 0 is no number, −0 stays
      if (x.numel() > 1) x.flatten()[1] = -0.0;
      const at::Tensor mask = keep_mask(kDropoutStream, rate, slice.sizes, slice.cut, at::kCPU);
      const at::Tensor expected = at::native_dropout_backward(x, mask, scale);
      for (const Grid& grid : kGrids) {
        on_gpu::set_grid(grid);
        const at::Tensor made = at::full_like(x, 9), kept = mask.logical_not();
        ASSERT_TRUE(drop_on_gpu(made, kept, x, scale,
                                keep_rule(kDropoutStream, rate, slice.sizes, slice.cut)));
        EXPECT_TRUE(kept.equal(mask));
        const at::Tensor numbers = expected.eq(expected);  // no number has one form
        EXPECT_TRUE(made.eq(made).equal(numbers));
        const auto cleared = [&](const at::Tensor& from) {
          return from.masked_fill(numbers.logical_not(), 0).contiguous();
        };
        EXPECT_TRUE(same_bits(cleared(made), cleared(expected))) << type << " " << x.sizes();
      }
    }
  }
}

// dropout(x, 0.3) of 5 of 7 samples, on the fake device: by one launch.
TEST(DropoutKernels, AreWhatAnOperatorOfTheGraphLaunches) {
  comm::fake::install();
  graph::Value yes;
  yes.kind = graph::Value::Kind::kBool;
  yes.integer.c = 1;
  for (const auto& [dtype, type] : {std::pair{graph::DType::kFloat32, at::kFloat},
                                    {graph::DType::kFloat64, at::kDouble},
                                    {graph::DType::kFloat16, at::kHalf},
                                    {graph::DType::kBFloat16, at::kBFloat16}}) {
    support::GraphMaker maker;
    const TensorId input = maker.input("x", {support::kB, support::n(33)}, dtype);
    maker.op("aten.native_dropout.default",
             {graph::tensor_value(input), graph::float_value(0.3), yes},
             {support::kB, support::n(33)}, {.dtype = dtype});
    const graph::ModelGraph graph = std::move(maker).build();
    const at::Tensor x = at::randn({5, 33}, type);
    const auto draw_on = [&](at::Device device) {
      const ExecuteOptions options{.device = device};
      const std::vector<at::Tensor> operands = {x.to(device)};
      const OperatorCall call(graph, OpId(0), {5, 7}, options);
      return draw(graph, call, operands, {{3, 1, OpId(0)}, 2, 7, 7},
                  {.kind = graph::SplitKind::kConcat}, options);
    };
    const auto expected = draw_on(at::kCPU);
    // Forward as backward: in half precision too by the number itself, not by what it is rounded
    // to.
    EXPECT_TRUE(same_bits(expected[0], at::native_dropout_backward(x, expected[1], 1 / (1 - 0.3))))
        << type;
    const on_gpu::HostKernels kernels;
    const at::DeviceType usual = gpu_stand_in;
    gpu_stand_in = at::kPrivateUse1;
    comm::fake::reset_counts();
    const auto made = draw_on(comm::fake::device(1));
    EXPECT_EQ(comm::fake::counts().launches, 1u) << type;
    gpu_stand_in = usual;
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(same_bits(made[i].cpu(), expected[i])) << type << " " << i;
    }
  }
}

}  // namespace
}  // namespace heterog::runtime
