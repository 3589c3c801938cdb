// What kernels of GPUs leave empty, or need not, as those of CPUs leave it.
#include "runtime/gpu/saved_results.h"

#include <gtest/gtest.h>

#include "operators/allowed.h"
#include "runtime/kernels/cudnn_norm.h"
#include "runtime/kernels/dispatcher.h"

namespace heterog::runtime {
namespace {

const c10::FunctionSchema& schema_of(const std::string& type) {
  return find_operator(type)->schema();
}

TEST(SavedResults, ABufferIsMadeWhereAGpuHasNone) {
  const at::Tensor x = at::randn({5, 7});
  const auto [result, buffer] = at::log_sigmoid_forward(x);
  const c10::FunctionSchema& schema = schema_of("aten.log_sigmoid_forward.default");
  const at::Tensor made = as_cpus_leave_it(schema, 1, at::empty({0}), buffer.sizes(), x);
  // The vectorised exponential function of the kernel is not that of the operator.
  EXPECT_TRUE(at::allclose(made, buffer, 1e-6, 0));
  EXPECT_TRUE(as_cpus_leave_it(schema, 0, result, result.sizes(), x).is_same(result));
  const at::Tensor gradient = at::randn({5, 7});
  EXPECT_TRUE(at::allclose(at::log_sigmoid_backward(gradient, x, made),
                           at::log_sigmoid_backward(gradient, x, buffer), 1e-6, 1e-7));
}

TEST(SavedResults, NothingElseIsCalledABuffer) {
  for (const std::string& type : operators::allowed_overloads()) {
    bool has_buffer = false;
    for (const c10::Argument& result : schema_of(type).returns()) {
      has_buffer |= result.name() == "buffer";
    }
    EXPECT_EQ(has_buffer, type == "aten.log_sigmoid_forward.default") << type;
  }
}

TEST(SavedResults, HaveTheDeclaredSizes) {
  const c10::FunctionSchema& bag = schema_of("aten._embedding_bag.default");
  const at::Tensor x = at::randn({4, 2});
  // Which bag each index is of, where the backward pass asks the offsets.
  EXPECT_EQ(as_cpus_leave_it(bag, 1, at::arange(6), {0}, x).numel(), 0);
  // Places of maxima, where there are none.
  const at::Tensor places = as_cpus_leave_it(bag, 3, at::empty({0}, at::kLong), {3}, x);
  EXPECT_TRUE(places.equal(at::zeros({3}, at::kLong)));
  const c10::FunctionSchema& norm = schema_of("aten.native_batch_norm.default");
  EXPECT_EQ(as_cpus_leave_it(norm, 1, at::ones({2}), {0}, x).numel(), 0);
}

TEST(SavedResults, StatisticsOfALayerNormAreWide) {
  const auto widened = [](const std::string& type, at::ScalarType saved) {
    const c10::FunctionSchema& schema = schema_of(type);
    std::vector<c10::IValue> arguments(schema.arguments().size());
    int found = 0;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = schema.arguments()[i].name();
      if (name == "mean" || name == "rstd") arguments[i] = at::ones({4}, saved);
    }
    widen_saved_statistics(schema, arguments);
    for (const c10::IValue& value : arguments) {
      found += value.isTensor() && value.toTensor().scalar_type() == at::kFloat ? 1 : 0;
    }
    return found;
  };
  EXPECT_EQ(widened("aten.native_layer_norm_backward.default", at::kBFloat16), 2);
  EXPECT_EQ(widened("aten.native_layer_norm_backward.default", at::kDouble), 0);
  // Whose statistics have the type of the input on both.
  EXPECT_EQ(widened("aten.native_group_norm_backward.default", at::kBFloat16), 0);
}

// By cuDNN go batch norms that PyTorch gives to it; without a GPU that ends in an error of
// PyTorch's.
TEST(CudnnNorm, IsForTrainingInFloat32WithChannelsApart) {
  const auto statistics = [] { return at::ones({3}); };
  const auto forward = [&](const at::Tensor& x, bool training, c10::IValue weight) {
    torch::jit::Stack stack = {
        x, std::move(weight), statistics(), statistics(), statistics(), training, 0.1, 1e-5};
    return normalise_by_cudnn(stack);
  };
  const auto backward = [&](const at::Tensor& x, bool training) {
    torch::jit::Stack stack = {x,
                               x,
                               statistics(),
                               statistics(),
                               statistics(),
                               statistics(),
                               statistics(),
                               training,
                               1e-5,
                               std::vector<bool>(3, true)};
    return normalise_back_by_cudnn(stack);
  };
  const at::Tensor x = at::randn({4, 3, 5, 5});
  EXPECT_ANY_THROW(forward(x, true, statistics()));
  EXPECT_ANY_THROW(backward(x, true));
  EXPECT_FALSE(forward(x, false, statistics()));
  EXPECT_FALSE(backward(x, false));
  EXPECT_FALSE(forward(x, true, {}));
  for (const at::Tensor& other : {x.to(at::kBFloat16), x.to(at::kDouble), at::randn({4, 3}),
                                  x.contiguous(at::MemoryFormat::ChannelsLast)}) {
    EXPECT_FALSE(forward(other, true, statistics()));
    EXPECT_FALSE(backward(other, true));
  }
}

}  // namespace
}  // namespace heterog::runtime
