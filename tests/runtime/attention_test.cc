// Attention written out and by fused kernels: what the kernel of CPUs gives, and dropout that any
// slice repeats.
#include "runtime/attention/attention.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "cost/weights_at_once.h"
#include "runtime/attention/dropped_attention.h"
#include "runtime/attention/fused_attention.h"
#include "runtime/host_kernels.h"
#include "runtime/kernels/execute.h"
#include "runtime/program/draws.h"
#include "support/graphs.h"

namespace heterog::runtime {
namespace {

using graph::tensor_value;
using support::kB;
using support::n;

const std::string kForward = "aten._scaled_dot_product_flash_attention_for_cpu.default";
const std::string kBackward = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default";

struct Form {
  double rate = 0;
  bool causal = false;
  bool mask = false;
  double scale = 0;  // 0: PyTorch's own
};

graph::Value bool_value(bool value) {
  graph::Value result;
  result.kind = graph::Value::Kind::kBool;
  result.integer.c = value ? 1 : 0;
  return result;
}

// Forward and backward over [B, 2, 4, 3] and [B, 2, 5, 3].
class AttentionTest : public testing::TestWithParam<Form> {
 protected:
  AttentionTest() {
    declare(graph::DType::kFloat32);
    at::manual_seed(3);
  }

  // The graph, with operands and results of this type; sums of half precision are kept in float32.
  void declare(graph::DType dtype) {
    const Form& form = GetParam();
    graph::GraphBuilder builder("attention");
    const auto tensor = [&](const std::string& name, std::vector<graph::Affine> shape,
                            graph::TensorRole role) {
      const bool is_sum = name == "sums" || name == "loss";
      return builder.add_tensor(
          {.name = name,
           .role = role,
           .dtype = is_sum && dtype != graph::DType::kFloat64 ? graph::DType::kFloat32 : dtype,
           .shape = std::move(shape)});
    };
    const auto input = graph::TensorRole::kInput, made = graph::TensorRole::kActivation;
    const std::vector<graph::Affine> few = {kB, n(2), n(4), n(3)}, many = {kB, n(2), n(5), n(3)};
    const TensorId q = tensor("q", few, input), k = tensor("k", many, input),
                   v = tensor("v", many, input), g = tensor("g", few, input);
    const TensorId mask = form.mask ? tensor("mask", {kB, n(1), n(4), n(5)}, input) : TensorId();
    const TensorId out = tensor("out", few, made), sums = tensor("sums", {kB, n(2), n(4)}, made);
    const TensorId dq = tensor("dq", few, made), dk = tensor("dk", many, made),
                   dv = tensor("dv", many, made);
    const TensorId loss = tensor("loss", {}, graph::TensorRole::kOutput);
    std::vector<std::pair<std::string, graph::Value>> more;
    if (form.mask) more.emplace_back("attn_mask", tensor_value(mask));
    if (form.scale != 0) more.emplace_back("scale", graph::float_value(form.scale));
    forward_ = builder.add_op({.name = "attend",
                               .type = kForward,
                               .args = {tensor_value(q), tensor_value(k), tensor_value(v),
                                        graph::float_value(form.rate), bool_value(form.causal)},
                               .outputs = {out, sums},
                               .kwargs = more});
    builder.add_op({.name = "sum",
                    .type = "aten.sum.default",
                    .args = {tensor_value(out)},
                    .outputs = {loss}});
    backward_ = builder.add_op({.name = "attend_back",
                                .type = kBackward,
                                .phase = graph::Phase::kBackward,
                                .args = {tensor_value(g), tensor_value(q), tensor_value(k),
                                         tensor_value(v), tensor_value(out), tensor_value(sums),
                                         graph::float_value(form.rate), bool_value(form.causal)},
                                .outputs = {dq, dk, dv},
                                .forward = forward_,
                                .kwargs = more});
    builder.set_loss(loss);
    graph_.emplace(std::move(builder).build("test"));
  }

  // Query, key, value, mask; the gradient of the result.
  struct Operands {
    std::vector<at::Tensor> forward;
    at::Tensor gradient;
    std::vector<at::Tensor> backward(const std::vector<at::Tensor>& made) const {
      std::vector<at::Tensor> given = {gradient,   forward[0], forward[1],
                                       forward[2], made[0],    made[1]};
      given.insert(given.end(), forward.begin() + 3, forward.end());
      return given;
    }
    Operands slice(std::int64_t begin, std::int64_t end) const {
      Operands part{{}, gradient.slice(0, begin, end)};
      for (const at::Tensor& x : forward) part.forward.push_back(x.slice(0, begin, end));
      return part;
    }
  };
  Operands random(std::int64_t samples, at::ScalarType dtype) const {
    const auto make = [&](at::IntArrayRef sizes) { return at::randn(sizes, dtype); };
    Operands given{{make({samples, 2, 4, 3}), make({samples, 2, 5, 3}), make({samples, 2, 5, 3})},
                   make({samples, 2, 4, 3})};
    if (GetParam().mask) {
      at::Tensor mask = make({samples, 1, 4, 5});
      mask[0][0][1].fill_(-std::numeric_limits<double>::infinity());  // looks at nothing
      given.forward.push_back(mask);
    }
    return given;
  }

  std::optional<graph::ModelGraph> graph_;
  OpId forward_, backward_;
};

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                  double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << i;
    if (found[i].dim() == 4) {
      EXPECT_EQ(found[i].strides(), expected[i].strides()) << i;
    }
    EXPECT_TRUE(at::allclose(found[i].to(at::kDouble), expected[i].to(at::kDouble), tolerance,
                             tolerance, /*equal_nan=*/false))
        << i << "\n"
        << found[i] << "\n"
        << expected[i];
  }
}

TEST_P(AttentionTest, IsWhatTheKernelOfCpusGives) {
  if (GetParam().rate > 0) GTEST_SKIP() << "the kernel drops nothing";
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 3e-2}}) {
    declare(dtype == at::kDouble  ? graph::DType::kFloat64
            : dtype == at::kFloat ? graph::DType::kFloat32
                                  : graph::DType::kBFloat16);
    const Operands given = random(3, dtype);
    // The logarithm of a sum over nothing is -inf here, and anything there: nobody reads it.
    const auto made = run_attention(*graph_, forward_, given.forward, {}, {});
    const auto by_kernel = execute(*graph_, forward_, given.forward, {3, 3}, {});
    expect_close({made[0]}, {by_kernel[0]}, tolerance);
    if (!GetParam().mask) expect_close({made[1]}, {by_kernel[1]}, tolerance);
    const auto operands = given.backward(by_kernel);
    expect_close(run_attention(*graph_, backward_, operands, {}, {}),
                 execute(*graph_, backward_, operands, {3, 3}, {}), tolerance);
  }
}

// As of a convolution's channels, whose heads are cut before they are turned: the kernel would read
// other numbers.
TEST_P(AttentionTest, TakesOperandsWhoseRowsDoNotLieSideBySide) {
  if (GetParam().rate > 0) GTEST_SKIP() << "the kernel drops nothing";
  declare(graph::DType::kFloat64);
  const Operands given = random(3, at::kDouble);
  const auto turned = [](const at::Tensor& x) {
    return x.transpose(-2, -1).contiguous().transpose(-2, -1);
  };
  Operands other{{}, turned(given.gradient)};
  for (const at::Tensor& x : given.forward) other.forward.push_back(turned(x));
  const auto flat = [](std::vector<at::Tensor> made) {
    for (at::Tensor& x : made) x = x.contiguous();
    return made;
  };
  const auto run = [&](OpId op, const std::vector<at::Tensor>& operands) {
    return flat(execute(*graph_, op, operands, {3, 3}, {}));
  };
  const auto made = run(forward_, given.forward);
  expect_close(run(forward_, other.forward), made, 1e-12);
  expect_close(run(backward_, other.backward(made)), run(backward_, given.backward(made)), 1e-12);
  expect_close(flat(run_attention(*graph_, backward_, other.backward(made), {}, {})),
               run(backward_, given.backward(made)), 1e-12);
}

TEST_P(AttentionTest, DropsOnASliceWhatItDropsOnTheWhole) {
  const RandomStream stream{.seed = 5, .step = 2, .op = forward_};
  const Operands given = random(5, at::kDouble);
  const auto whole = run_attention(*graph_, forward_, given.forward, stream, {});
  const auto back = run_attention(*graph_, backward_, given.backward(whole), stream, {});
  std::vector<std::vector<at::Tensor>> parts(5);
  for (const auto& [begin, end] : {std::pair{0, 2}, {2, 5}}) {
    const Cut cut{0, 1, 5, begin, end - begin};
    const Operands slice = given.slice(begin, end);
    const auto made = run_attention(*graph_, forward_, slice.forward, stream, cut);
    const auto gradients = run_attention(*graph_, backward_, slice.backward(made), stream, cut);
    for (int i = 0; i < 2; ++i) parts[i].push_back(made[i]);
    for (int i = 0; i < 3; ++i) parts[i + 2].push_back(gradients[i]);
  }
  std::vector<at::Tensor> joined;
  for (const auto& of : parts) joined.push_back(at::cat(of, 0));
  std::vector<at::Tensor> expected = {whole[0], whole[1], back[0], back[1], back[2]};
  for (auto* tensors : {&joined, &expected}) {
    for (at::Tensor& of : *tensors) of = of.contiguous();
  }
  expect_close(joined, expected, 1e-15);
}

// d/dx of Σ g ∘ out at x, in a random direction, by a central difference.
TEST_P(AttentionTest, HasTheGradientThatDifferencesGive) {
  if (GetParam().mask) GTEST_SKIP() << "a difference of infinities";
  const RandomStream stream{.seed = 5, .step = 2, .op = forward_};
  const Operands given = random(3, at::kDouble);
  const auto made = run_attention(*graph_, forward_, given.forward, stream, {});
  const auto gradients = run_attention(*graph_, backward_, given.backward(made), stream, {});
  for (std::size_t i = 0; i < 3; ++i) {
    const at::Tensor direction = at::randn_like(given.forward[i]);
    const auto objective = [&](double by) {
      std::vector<at::Tensor> moved = given.forward;
      moved[i] = moved[i] + by * direction;
      const auto out = run_attention(*graph_, forward_, moved, stream, {})[0];
      return (out * given.gradient).sum().item<double>();
    };
    const double difference = (objective(1e-6) - objective(-1e-6)) / 2e-6;
    EXPECT_NEAR((gradients[i] * direction).sum().item<double>(), difference, 1e-6) << i;
  }
}

// Calls of operators, those that operators make too.
std::int64_t calls_of(const std::function<void()>& work) {
  static std::int64_t calls;
  calls = 0;
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction&) {
                                   ++calls;
                                   return std::unique_ptr<at::ObserverContext>();
                                 }).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  return calls;
}

// A GPU takes longer to start so many small kernels than to run a few large ones.
TEST_P(AttentionTest, CallsAsManyOperatorsForManySamplesAsForOne) {
  const RandomStream stream{.seed = 5, .step = 2, .op = forward_};
  const auto calls = [&](std::int64_t samples) {
    const Operands given = random(samples, at::kFloat);
    return calls_of([&] {
      const auto made = run_attention(*graph_, forward_, given.forward, stream, {});
      run_attention(*graph_, backward_, given.backward(made), stream, {});
    });
  };
  EXPECT_EQ(calls(40), calls(2));
  EXPECT_LE(calls(40), 300);  // views too, and what operators call
}

// ---- by fused kernels, of which that of CPUs stands for those of GPUs ----

// As particular as theirs are.
void expect_as_kernels_want_it(const Attention& a) {
  EXPECT_EQ(a.rate, 0);
  for (const at::Tensor& x : {a.query, a.key, a.value, a.gradient, a.result}) {
    if (x.defined()) {
      EXPECT_EQ(x.size(-1) % 8, 0) << x.sizes();
    }
  }
  if (!a.mask.defined()) return;
  const std::vector<std::int64_t> scores = {a.query.size(0), a.query.size(1), a.query.size(2),
                                            a.key.size(2)};
  EXPECT_EQ(a.mask.sizes(), scores);
  EXPECT_EQ(a.mask.scalar_type(), a.query.scalar_type());
  EXPECT_EQ(a.mask.stride(-1), 1);
  const auto bytes = static_cast<std::int64_t>(a.mask.element_size());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.mask.stride(i) * bytes % 16, 0) << a.mask.strides();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.mask.const_data_ptr()) % 16, 0);
}

std::optional<at::Tensor> mask_of(const Attention& a) {
  return a.mask.defined() ? std::optional(a.mask) : std::nullopt;
}

constexpr AttentionKernels kOfCpus{
    [](const Attention& a) -> std::vector<at::Tensor> {
      expect_as_kernels_want_it(a);
      auto [result, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
          a.query, a.key, a.value, 0, a.causal, mask_of(a), a.scale);
      if (a.mask.defined()) {  // −∞ where nothing is looked at, as GPUs have it
        const at::Tensor never = a.mask.amax(-1).eq(-std::numeric_limits<double>::infinity());
        sums.masked_fill_(never, -std::numeric_limits<double>::infinity());
        result.masked_fill_(never.unsqueeze(-1), std::numeric_limits<double>::quiet_NaN());
      }
      return {result, sums};
    },
    [](const Attention& a) -> std::vector<at::Tensor> {
      expect_as_kernels_want_it(a);
      EXPECT_FALSE(a.log_sums.eq(-std::numeric_limits<double>::infinity()).any().item<bool>());
      const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          a.gradient, a.query, a.key, a.value, a.result, a.log_sums, 0, a.causal, mask_of(a),
          a.scale);
      return {query, key, value};
    }};

// As long as `expected` but for a share: half precision rounds what nearly cancels, too.
void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                 double share) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << i;
    if (found[i].dim() == 4) {
      EXPECT_EQ(found[i].strides(), expected[i].strides()) << i;
    }
    const at::Tensor wide = expected[i].to(at::kDouble);
    const double off = (found[i].to(at::kDouble) - wide).norm().item<double>();
    EXPECT_LE(off, share * wide.norm().item<double>()) << i;
  }
}

TEST_P(AttentionTest, IsTheSameByFusedKernels) {
  if (GetParam().rate > 0) GTEST_SKIP() << "no such kernel is asked";
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kDouble, 1e-12}, {at::kFloat, 2e-6}, {at::kBFloat16, 4e-2}}) {
    declare(dtype == at::kDouble  ? graph::DType::kFloat64
            : dtype == at::kFloat ? graph::DType::kFloat32
                                  : graph::DType::kBFloat16);
    const Operands given = random(5, dtype).slice(1, 4);
    const auto written_out = run_attention(*graph_, forward_, given.forward, {}, {});
    const auto fused = fused_attention(attention_of(*graph_, forward_, given.forward), kOfCpus);
    expect_near({fused[0]}, {written_out[0]}, tolerance);
    if (!GetParam().mask) expect_near({fused[1]}, {written_out[1]}, tolerance);
    const auto operands = given.backward(written_out);
    expect_near(fused_attention(attention_of(*graph_, backward_, operands), kOfCpus),
                run_attention(*graph_, backward_, operands, {}, {}), tolerance);
  }
}

// Where weights are dropped, by the kernels of dropout.cu; by grids that cover all rows, or not.
TEST_P(AttentionTest, IsTheSameByKernelsThatDropWeights) {
  if (GetParam().rate <= 0 || GetParam().rate >= 1) GTEST_SKIP() << "nothing is drawn";
  const RandomStream stream{.seed = 5, .step = 2, .op = forward_};
  const Cut cut{0, 1, 7, 2, 3};
  for (const auto& [dtype, name, tolerance] : {std::tuple{at::kFloat, "_float32", 2e-6},
                                               {at::kHalf, "_float16", 5e-3},
                                               {at::kBFloat16, "_bfloat16", 4e-2}}) {
    SCOPED_TRACE(name);
    declare(dtype == at::kFloat  ? graph::DType::kFloat32
            : dtype == at::kHalf ? graph::DType::kFloat16
                                 : graph::DType::kBFloat16);
    const Operands given = random(5, dtype).slice(1, 4);
    const auto written_out = run_attention(*graph_, forward_, given.forward, stream, cut);
    const auto operands = given.backward(written_out);
    const auto written_back = run_attention(*graph_, backward_, operands, stream, cut);
    const on_gpu::HostKernels kernels;
    for (const std::optional<Grid>& grid : {std::optional<Grid>(), {Grid{1, 1}}}) {
      on_gpu::set_grid(grid);
      const auto made =
          attention_that_drops(attention_of(*graph_, forward_, given.forward), stream, cut);
      ASSERT_TRUE(made);
      expect_near(*made, written_out, tolerance);
      const auto back =
          attention_that_drops(attention_of(*graph_, backward_, operands), stream, cut);
      ASSERT_TRUE(back);
      expect_near(*back, written_back, tolerance);
    }
    EXPECT_EQ(on_gpu::launches_of(std::string("drop_weights") + name), 2);
    EXPECT_EQ(on_gpu::launches_of(std::string("drop_weights_backward") + name), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionTest,
                         testing::Values(Form{}, Form{.causal = true}, Form{.mask = true},
                                         Form{.scale = 0.3}, Form{.rate = 0.4},
                                         Form{.rate = 0.4, .causal = true},
                                         Form{.rate = 0.4, .mask = true}, Form{.rate = 0.9},
                                         Form{.rate = 1, .scale = 0.3}));

TEST(AttentionThatDrops, KeepsTheShareThatItSays) {
  // With equal scores and ones as values every result is the mean of what its weights became.
  graph::GraphBuilder builder("mean");
  const std::vector<graph::Affine> shape = {kB, n(4), n(50), n(1)};
  const auto input = [&](const char* name) {
    return builder.add_tensor({.name = name, .role = graph::TensorRole::kInput, .shape = shape});
  };
  const TensorId q = input("q"), k = input("k"), v = input("v");
  const TensorId out = builder.add_tensor({.name = "out", .shape = shape});
  const TensorId loss =
      builder.add_tensor({.name = "loss", .role = graph::TensorRole::kOutput, .shape = {}});
  const OpId op = builder.add_op(
      {.name = "attend",
       .type = kForward,
       .args = {tensor_value(q), tensor_value(k), tensor_value(v), graph::float_value(0.25)},
       .outputs = {out, TensorId()}});
  builder.add_op(
      {.name = "sum", .type = "aten.sum.default", .args = {tensor_value(out)}, .outputs = {loss}});
  builder.set_loss(loss);
  const graph::ModelGraph graph = std::move(builder).build("test");
  const std::vector<at::Tensor> given(3, at::ones({6, 4, 50, 1}, at::kDouble));
  const auto mean = [&](std::int64_t step) {
    const auto made = run_attention(graph, op, given, {.seed = 1, .step = step, .op = op}, {});
    return made[0].mean().item<double>();
  };
  // 60,000 weights, each 4/3 with probability 3/4: the mean's deviation is 0.0024.
  EXPECT_NEAR(mean(1), 1, 0.012);
  EXPECT_NE(mean(1), mean(2));
}

}  // namespace
}  // namespace heterog::runtime
