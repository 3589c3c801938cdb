// Both operators save a mean and one over a deviation, so that either's backward serves either.
#include "runtime/kernels/cudnn_norm.h"

#include <ATen/ATen.h>

#include <tuple>

namespace heterog::runtime {
namespace {

// PyTorch's conditions (_select_batch_norm_backend), of which those of sizes hold for any batch of
// a training step.
constexpr double kLeastEpsilon = 1e-5;
constexpr std::int64_t kMostSamples = 880'801;

bool is_for_cudnn(const at::Tensor& input, const c10::IValue& weight, double epsilon) {
  return input.scalar_type() == at::kFloat && (input.dim() == 4 || input.dim() == 5) &&
         input.is_contiguous() && input.size(0) <= kMostSamples && weight.isTensor() &&
         weight.toTensor().scalar_type() == at::kFloat && epsilon >= kLeastEpsilon;
}

template <class... Tensors>
void replace(torch::jit::Stack& stack, const Tensors&... results) {
  stack.clear();
  (stack.emplace_back(results), ...);
}

}  // namespace

bool normalise_by_cudnn(torch::jit::Stack& a) {
  const at::Tensor input = a[0].toTensor();
  if (!is_for_cudnn(input, a[1], a[7].toDouble()) || !a[2].isTensor() || !a[5].toBool()) {
    return false;
  }
  const auto made =
      at::cudnn_batch_norm(input, a[1].toTensor(), a[2].toTensor(), a[3].toTensor(),
                           a[4].toTensor(), /*training=*/true, a[6].toDouble(), a[7].toDouble());
  replace(a, std::get<0>(made), std::get<1>(made), std::get<2>(made));
  return true;
}

bool normalise_back_by_cudnn(torch::jit::Stack& a) {
  const at::Tensor input = a[1].toTensor();
  if (!is_for_cudnn(input, a[2], a[8].toDouble()) || !a[5].isTensor() || !a[6].isTensor() ||
      !a[7].toBool()) {
    return false;
  }
  const auto made = at::cudnn_batch_norm_backward(
      input, a[0].toTensor().contiguous(), a[2].toTensor(), a[3].toOptional<at::Tensor>(),
      a[4].toOptional<at::Tensor>(), a[5].toTensor(), a[6].toTensor(), a[8].toDouble(),
      at::empty({0}, input.options().dtype(at::kByte)));
  replace(a, std::get<0>(made), std::get<1>(made), std::get<2>(made));
  return true;
}

}  // namespace heterog::runtime
