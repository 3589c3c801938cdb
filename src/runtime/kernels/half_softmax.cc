// Casts where no kernel does.
#include "runtime/kernels/half_softmax.h"

#include <ATen/ATen.h>

#include <optional>

namespace heterog::runtime {
namespace {

struct Places {
  std::optional<int> half_to_float;  // of the forward operator
  std::optional<int> input_dtype;    // of the backward operator
};

Places places_in(const c10::FunctionSchema& schema) {
  return {schema.argumentIndexWithName("half_to_float"),
          schema.argumentIndexWithName("input_dtype")};
}

}  // namespace

bool is_half_softmax(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  const auto [forward, backward] = places_in(schema);
  if (forward) return arguments[static_cast<std::size_t>(*forward)].toBool();
  return backward &&
         arguments[static_cast<std::size_t>(*backward)].toScalarType() == at::ScalarType::Half;
}

void call_half_softmax(const c10::OperatorHandle& handle, torch::jit::Stack& arguments) {
  const auto [forward, backward] = places_in(handle.schema());
  const at::Tensor first = arguments[0].toTensor();
  if (forward) {
    // In a proof all is in float64.
    if (!first.is_cuda() || first.scalar_type() != at::ScalarType::Half) {
      if (first.scalar_type() == at::ScalarType::Half) arguments[0] = first.to(at::kFloat);
      arguments[static_cast<std::size_t>(*forward)] = false;
    }
    return handle.callBoxed(arguments);
  }
  if (first.is_cuda() && first.scalar_type() == at::ScalarType::Float) {
    return handle.callBoxed(arguments);
  }
  arguments[static_cast<std::size_t>(*backward)] = first.scalar_type();
  handle.callBoxed(arguments);
  arguments[0] = arguments[0].toTensor().to(at::ScalarType::Half);
}

}  // namespace heterog::runtime
