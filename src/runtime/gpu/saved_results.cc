// Known of by their sizes: python/tests/export/test_device_results.py looks for others.
#include "runtime/gpu/saved_results.h"

namespace heterog::runtime {
namespace {

// exp(-|x|) of a logarithm of a sigmoid, which only kernels of CPUs make and read.
bool is_buffer(const c10::FunctionSchema& schema, std::size_t index) {
  return schema.returns()[index].name() == "buffer";
}

}  // namespace

at::Tensor as_cpus_leave_it(const c10::FunctionSchema& schema, std::size_t index,
                            const at::Tensor& made, at::IntArrayRef declared,
                            const at::Tensor& first) {
  if (!made.defined() || made.sizes() == declared || index >= schema.returns().size()) return made;
  // Statistics where the running ones are used, where bags lie that are given by offsets.
  if (c10::multiply_integers(declared) == 0) return at::empty(declared, made.options());
  if (made.numel() > 0) return made;
  if (is_buffer(schema, index)) return first.abs().neg_().exp_();
  // The places of largest elements, of a bag whose elements are added up.
  return at::zeros(declared, made.options());
}

void widen_saved_statistics(const c10::FunctionSchema& schema,
                            std::vector<c10::IValue>& arguments) {
  // (gradient, input, normalized_shape, mean, rstd, …): asked of every operator, so by the place.
  constexpr std::size_t kMean = 3, kDeviation = 4;
  if (arguments.size() <= kDeviation || schema.arguments()[kMean].name() != "mean" ||
      schema.arguments()[kDeviation].name() != "rstd") {
    return;
  }
  for (const std::size_t i : {kMean, kDeviation}) {
    const at::Tensor& value = arguments[i].toTensor();
    const at::ScalarType type = value.scalar_type();
    if (type == at::kHalf || type == at::kBFloat16) arguments[i] = value.to(at::kFloat);
  }
}

}  // namespace heterog::runtime
