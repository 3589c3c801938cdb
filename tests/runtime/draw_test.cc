// Operators that draw random numbers: what they make of their arguments, in every type.
#include "runtime/kernels/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "operators/facts.h"
#include "support/graphs.h"

namespace heterog::runtime {
namespace {

using graph::DType;
using graph::float_value;
using graph::int_value;
using graph::Value;
using support::kB;
using support::n;

constexpr std::int64_t kRows = 500;
constexpr std::int64_t kColumns = 40;
constexpr double kElements = static_cast<double>(kRows * kColumns);

Value true_value() { return {.kind = Value::Kind::kBool, .integer = {0, 1}}; }

// An operator on [kRows, kColumns], or with these sizes for a result.
struct Drawn {
  std::string type;
  std::vector<at::Tensor> operands = {};  // its first arguments
  std::vector<Value> more = {};
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> sizes = {kRows, kColumns};
};

at::Tensor draw_one(const Drawn& of, std::int64_t step = 1, Floats floats = Floats::kOwn) {
  support::GraphMaker maker;
  std::vector<Value> args;
  for (const at::Tensor& operand : of.operands) {
    support::GraphMaker::Shape shape;
    for (const std::int64_t size : operand.sizes()) shape.push_back(n(size));
    args.push_back(graph::tensor_value(maker.input("x" + std::to_string(args.size()), shape)));
  }
  args.insert(args.end(), of.more.begin(), of.more.end());
  support::GraphMaker::Shape shape;
  for (const std::int64_t size : of.sizes) shape.push_back(n(size));
  maker.op(of.type, args, shape, {.dtype = of.dtype});
  const graph::ModelGraph graph = std::move(maker).build();
  const ExecuteOptions options{.floats = floats};
  const OperatorCall call(graph, OpId(0), {1, 1}, options);
  return draw(graph, call, of.operands, {{3, step, OpId(0)}, 0, 1, 1}, {graph::SplitKind::kSame},
              options)
      .at(0);
}

Value sizes_value(std::vector<std::int64_t> sizes = {kRows, kColumns}) {
  Value list{.kind = Value::Kind::kList};
  for (const std::int64_t size : sizes) list.items.push_back(int_value(size));
  return list;
}

at::Tensor like() { return at::zeros({kRows, kColumns}); }

double mean_of(const at::Tensor& values) { return values.to(at::kDouble).mean().item<double>(); }
double deviation_of(const at::Tensor& values) {
  return values.to(at::kDouble).std().item<double>();
}

// Every overload that draws by counter, with arguments and the mean that they give.
struct DrawExample {
  Drawn drawn;
  double mean = 0;
  double deviation = 1;
};

std::vector<DrawExample> draw_examples() {
  const at::Tensor third = at::full({kRows, kColumns}, 1.0 / 3);
  const at::Tensor two = at::full({kRows, kColumns}, 2.0);
  const double coin = std::sqrt(2.0) / 3;
  const double dice = std::sqrt(99 / 12.0);
  return {{{"aten.bernoulli.default", {third}}, 1 / 3.0, coin},
          {{"aten.bernoulli.Tensor", {two, third}}, 1 / 3.0, coin},
          {{"aten.bernoulli.p", {two}, {float_value(1 / 3.0)}}, 1 / 3.0, coin},
          {{"aten.rand.default", {}, {sizes_value()}}, 0.5, std::sqrt(1 / 12.0)},
          {{"aten.rand_like.default", {like()}}, 0.5, std::sqrt(1 / 12.0)},
          {{"aten.uniform.default", {like()}, {float_value(-1), float_value(3)}},
           1,
           std::sqrt(16 / 12.0)},
          {{"aten.randn.default", {}, {sizes_value()}}, 0, 1},
          {{"aten.randn_like.default", {like()}}, 0, 1},
          {{"aten.normal_functional.default", {like()}, {float_value(2), float_value(3)}}, 2, 3},
          {{"aten.normal.float_float", {}, {float_value(2), float_value(3), sizes_value()}}, 2, 3},
          {{"aten.normal.Tensor_float", {third}, {float_value(3)}}, 1 / 3.0, 3},
          {{"aten.normal.Tensor_Tensor", {third, two}}, 1 / 3.0, 2},
          {{"aten.exponential.default", {like()}, {float_value(4)}}, 0.25, 0.25},
          {{"aten.log_normal.default", {like()}, {float_value(0.5), float_value(0.25)}},
           std::exp(0.53125),
           std::exp(0.53125) * std::sqrt(std::exp(0.0625) - 1)},
          {{"aten.geometric.default", {like()}, {float_value(0.3)}}, 1 / 0.3, std::sqrt(0.7) / 0.3},
          {{"aten.randint.default", {}, {int_value(10), sizes_value()}}, 4.5, dice},
          {{"aten.randint.low", {}, {int_value(-4), int_value(6), sizes_value()}}, 0.5, dice},
          {{"aten.randint_like.default", {like()}, {int_value(10)}}, 4.5, dice},
          {{"aten.randint_like.low_dtype", {like()}, {int_value(-4), int_value(6)}}, 0.5, dice}};
}

TEST(Draw, GivesTheMeanAndTheDeviationOfTheArguments) {
  for (const DrawExample& example : draw_examples()) {
    SCOPED_TRACE(example.drawn.type);
    const at::Tensor values = draw_one(example.drawn);
    EXPECT_EQ(values.scalar_type(), at::kFloat);
    EXPECT_EQ(values.sizes(), (std::vector<std::int64_t>{kRows, kColumns}));
    // Six standard errors; that of a deviation by a kurtosis of at most 10.
    const double error = example.deviation / std::sqrt(kElements);
    EXPECT_NEAR(mean_of(values), example.mean, 6 * error);
    EXPECT_NEAR(deviation_of(values), example.deviation, 6 * 1.5 * error);
    EXPECT_FALSE(values.equal(draw_one(example.drawn, 2))) << "the same in every step";
    EXPECT_TRUE(values.equal(draw_one(example.drawn)));
  }
}

// The numbers of a narrow type are those of float64, rounded: a proof in float64 is one of them.
TEST(Draw, IsTheSameInEveryTypeUpToRounding) {
  const std::pair<DType, double> types[] = {{DType::kFloat64, 1e-15},
                                            {DType::kFloat32, 2e-7},
                                            {DType::kFloat16, 2e-3},
                                            {DType::kBFloat16, 1.6e-2}};
  for (DrawExample example : draw_examples()) {
    SCOPED_TRACE(example.drawn.type);
    const at::Tensor exact = draw_one(example.drawn, 1, Floats::kDouble);
    EXPECT_EQ(exact.scalar_type(), at::kDouble);
    for (const auto& [type, rounding] : types) {
      example.drawn.dtype = type;
      const at::Tensor values = draw_one(example.drawn).to(at::kDouble);
      // A uniform number loses digits, of 4 at most; all others are rounded.
      const double size = exact.abs().max().item<double>();
      EXPECT_LE((values - exact).abs().max().item<double>(), rounding * std::max(size, 4.0))
          << graph::dtype_name(type);
    }
  }
}

TEST(Draw, StaysInsideItsIntervalInEveryType) {
  for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(graph::dtype_name(type));
    const at::Tensor uniform = draw_one({"aten.rand.default", {}, {sizes_value()}, type});
    EXPECT_LT(uniform.max().to(at::kDouble).item<double>(), 1);
    EXPECT_GE(uniform.min().to(at::kDouble).item<double>(), 0);
    const at::Tensor waits = draw_one({"aten.exponential.default", {like()}, {}, type});
    EXPECT_TRUE(waits.to(at::kDouble).log().isfinite().all().item<bool>());
  }
  for (const DType type :
       {DType::kInt64, DType::kInt32, DType::kInt8, DType::kUInt8, DType::kBool}) {
    const at::Tensor bits =
        draw_one({"aten.randint.default", {}, {int_value(2), sizes_value()}, type});
    EXPECT_EQ(bits.scalar_type(), scalar_type(type, Floats::kOwn));
    EXPECT_NEAR(mean_of(bits), 0.5, 6 * 0.5 / std::sqrt(kElements));
  }
}

TEST(Draw, OfCertainEventsIsCertain) {
  const auto coin = [](double p) {
    return mean_of(draw_one({"aten.bernoulli.p", {like()}, {float_value(p)}}));
  };
  EXPECT_EQ(coin(0), 0);
  EXPECT_EQ(coin(1), 1);
  const auto by_tensor = [](double p) {
    return mean_of(draw_one({"aten.bernoulli.default", {at::full({kRows, kColumns}, p)}}));
  };
  EXPECT_EQ(by_tensor(0), 0);
  EXPECT_EQ(by_tensor(1), 1);
  EXPECT_EQ(mean_of(draw_one({"aten.geometric.default", {like()}, {float_value(1)}})), 1);
}

// The same element is 1 whether the probability is a number or a tensor.
TEST(Draw, OfANumberIsThatOfATensor) {
  const at::Tensor number = draw_one({"aten.bernoulli.p", {like()}, {float_value(0.25)}});
  const at::Tensor tensor =
      draw_one({"aten.bernoulli.default", {at::full({kRows, kColumns}, 0.25)}});
  EXPECT_TRUE(number.equal(tensor));
  const at::Tensor normal =
      draw_one({"aten.normal_functional.default", {like()}, {float_value(2), float_value(3)}});
  const at::Tensor of_tensors = draw_one(
      {"aten.normal.Tensor_Tensor", {at::full({kRows, kColumns}, 2.0), at::full({kColumns}, 3.0)}});
  EXPECT_TRUE(normal.allclose(of_tensors, 1e-6, 1e-6));
  const at::Tensor of_deviations =
      draw_one({"aten.normal.Tensor_float", {at::full({kRows, kColumns}, 2.0)}, {float_value(3)}});
  EXPECT_TRUE(normal.allclose(of_deviations, 1e-6, 1e-6));
}

TEST(Draw, OfSlopesIsALeakyReLU) {
  const at::Tensor x = at::linspace(-1, 1, kRows * kColumns).view({kRows, kColumns});
  support::GraphMaker maker;
  const support::GraphMaker::Shape shape = {n(kRows), n(kColumns)};
  const TensorId in = maker.input("x", shape), noise = maker.input("noise", shape);
  maker.op("aten.rrelu_with_noise_functional.default",
           {graph::tensor_value(in), graph::tensor_value(noise), float_value(0.1), float_value(0.3),
            true_value()},
           shape);
  const graph::ModelGraph graph = std::move(maker).build();
  const OperatorCall call(graph, OpId(0), {1, 1}, {});
  const std::vector<at::Tensor> operands = {x, x};
  const auto results =
      draw(graph, call, operands, {{3, 1, OpId(0)}, 0, 1, 1}, {graph::SplitKind::kSame}, {});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results[0].equal(x * results[1]));
  EXPECT_TRUE(results[1].masked_select(x.gt(0)).eq(1).all().item<bool>());
  const at::Tensor slopes = results[1].masked_select(x.le(0));
  EXPECT_GE(slopes.min().item<double>(), 0.1 - 1e-7);
  EXPECT_LT(slopes.max().item<double>(), 0.3);
  EXPECT_NEAR(mean_of(slopes), 0.2, 6 * 0.2 / std::sqrt(12 * kElements / 2));
}

// Rows of the same weights: how often each is the first choice, and none twice without repetition.
TEST(Draw, OfChoicesFollowsTheWeights) {
  const at::Tensor weights = at::tensor({1.0F, 0.0F, 3.0F, 6.0F});
  const std::int64_t rows = 20'000;
  const at::Tensor all = weights.expand({rows, 4}).contiguous();
  const auto chosen = [&](std::int64_t count, std::vector<Value> more = {}) {
    more.insert(more.begin(), int_value(count));
    return draw_one({"aten.multinomial.default", {all}, more, DType::kInt64, {rows, count}});
  };
  for (const at::Tensor& choices : {chosen(1), chosen(3), chosen(5, {true_value()})}) {
    EXPECT_EQ(choices.scalar_type(), at::kLong);
    const at::Tensor first = choices.select(1, 0);
    for (const std::int64_t category : {0, 1, 2, 3}) {
      const double p = weights[category].item<double>() / 10;
      EXPECT_NEAR(mean_of(first.eq(category)), p, 6 * std::sqrt(p * (1 - p) / rows)) << category;
    }
  }
  // Each of the three that can be chosen, once.
  EXPECT_TRUE(std::get<0>(chosen(3).sort(1)).eq(at::tensor({0, 2, 3})).all().item<bool>());
  // With repetition the fifth is as the first.
  const at::Tensor last = chosen(5, {true_value()}).select(1, 4);
  EXPECT_NEAR(mean_of(last.eq(3)), 0.6, 6 * std::sqrt(0.24 / rows));
}

TEST(Draw, OfAPermutationHasItsType) {
  const at::Tensor order =
      draw_one({"aten.randperm.default", {}, {int_value(50)}, DType::kInt32, {50}});
  EXPECT_EQ(order.scalar_type(), at::kInt);
  EXPECT_TRUE(std::get<0>(order.sort()).equal(at::arange(50, at::kInt)));
}

TEST(Draw, RefusesWhatHasNoNumbers) {
  const auto refused = [](const Drawn& drawn, const std::string& part) {
    try {
      draw_one(drawn);
      ADD_FAILURE() << drawn.type << " was drawn";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  };
  refused({"aten.randint.low", {}, {int_value(5), int_value(5), sizes_value()}}, "from 5 up to 5");
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  refused({"aten.randint.low", {}, {int_value(least), int_value(1), sizes_value()}}, "2^63");
  refused({"aten.bernoulli.p", {like()}, {float_value(1.5)}}, "p is 1.5");
  refused({"aten.exponential.default", {like()}, {float_value(0)}}, "lambd is 0");
}

}  // namespace
}  // namespace heterog::runtime
