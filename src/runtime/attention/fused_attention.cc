// Operands as kernels want them, and results as the graph expects them.
#include "runtime/attention/fused_attention.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/check.h"

namespace heterog::runtime {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::int64_t missing(std::int64_t size, std::int64_t step) { return (step - size % step) % step; }

// ------------------------------------------------------------------------------- operands

// Zeros behind each row add nothing to a product.
at::Tensor widened(const at::Tensor& x) {
  const std::int64_t zeros = x.defined() ? missing(x.size(-1), kWidthStep) : 0;
  return zeros == 0 ? x : at::constant_pad_nd(x, {0, zeros});
}

// Memory of these sizes whose rows begin where kernels want them.
at::Tensor empty_rows(const std::vector<std::int64_t>& sizes, const at::TensorOptions& options) {
  std::vector<std::int64_t> held = sizes;
  const auto bytes = static_cast<std::int64_t>(options.dtype().itemsize());
  held.back() += missing(held.back(), kRowBytes / bytes);
  return at::empty(held, options).narrow(-1, 0, sizes.back());
}

bool has_aligned_rows(const at::Tensor& mask) {
  const auto bytes = static_cast<std::int64_t>(mask.element_size());
  if (mask.stride(-1) != 1) return false;
  for (std::int64_t i = 0; i + 1 < mask.dim(); ++i) {
    if (mask.stride(i) * bytes % kRowBytes != 0) return false;
  }
  return reinterpret_cast<std::uintptr_t>(mask.const_data_ptr()) % kRowBytes == 0;
}

// The mask as what is added to the scores, [N, H, L, S]; undefined: nothing.
at::Tensor bias_of(const Attention& a) {
  if (!a.mask.defined()) return {};
  at::Tensor bias = a.mask;
  if (bias.scalar_type() == at::kBool) bias = bias.log();  // 0 or −∞, by one kernel
  bias = bias.to(a.query.scalar_type());
  // One for all rows, heads or samples stays one: what is expanded has strides of 0.
  if (bias.size(-1) != a.key.size(2)) {
    std::vector<std::int64_t> sizes = bias.sizes().vec();
    sizes.back() = a.key.size(2);
    bias = bias.expand(sizes);
  }
  if (!has_aligned_rows(bias)) bias = empty_rows(bias.sizes().vec(), bias.options()).copy_(bias);
  return bias.expand({a.query.size(0), a.query.size(1), a.query.size(2), a.key.size(2)});
}

// By −∞ the kernels would make weights that are no numbers.
at::Tensor taken_sums(const at::Tensor& sums, const at::Tensor& mask) {
  return mask.defined() ? at::nan_to_num(sums, kNone, kInfinity, kInfinity) : sums;
}

Attention prepared(const Attention& given) {
  Attention a = given;
  a.mask = bias_of(given);
  for (at::Tensor* x : {&a.query, &a.key, &a.value, &a.gradient, &a.result}) *x = widened(*x);
  if (a.log_sums.defined()) a.log_sums = taken_sums(a.log_sums, a.mask);
  return a;
}

// What was made, in memory as the graph's views expect it, without the zeros behind each row.
at::Tensor laid_out(const at::Tensor& made, const at::Tensor& form) {
  const at::Tensor own = made.narrow(-1, 0, form.size(-1));
  return own.strides() == form.strides()
             ? own
             : at::empty_strided(form.sizes(), form.strides(), own.options()).copy_(own);
}

std::vector<at::Tensor> laid_out(const Attention& given, std::vector<at::Tensor> made) {
  const auto meta = [](const at::Tensor& x) { return x.options().device(at::kMeta); };
  if (!given.gradient.defined()) {
    made[0] = laid_out(made[0], at::empty_like(given.query, meta(given.query)));
    return made;
  }
  const std::array operands = {given.query, given.key, given.value};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const at::Tensor& x = operands[i];
    made[i] = laid_out(
        made[i], at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, meta(x)).transpose(1, 2));
  }
  return made;
}

}  // namespace

std::vector<at::Tensor> fused_attention(const Attention& given, const AttentionKernels& kernels) {
  EXPECT(given.rate == 0);
  const bool backward = given.gradient.defined();
  return laid_out(given, (backward ? kernels.backward : kernels.forward)(prepared(given)));
}

// ------------------------------------------------------------------------------- GPUs

namespace {

// The memory-efficient kernel's rows of sums, a multiple of 32.
constexpr std::int64_t kRowsOfSums = 32;
// The widest that flash attention has a kernel for.
constexpr std::int64_t kWidestFlash = 256;

// Flash attention has no masks, no single precision, and another causal mask than PyTorch's where
// there are not as many queries as keys.
bool is_flash(const Attention& a) {
  return is_half(a.query) && !a.mask.defined() && a.query.size(3) <= kWidestFlash &&
         (!a.causal || a.query.size(2) == a.key.size(2));
}

std::optional<at::Tensor> given_mask(const Attention& a) {
  return a.mask.defined() ? std::optional(a.mask) : std::nullopt;
}

// Of random numbers, where none are drawn: nobody reads it.
at::Tensor no_seed(const Attention& a) { return at::empty({}, a.query.options().dtype(at::kLong)); }

std::vector<at::Tensor> forward_on_gpu(const Attention& a) {
  if (is_flash(a)) {
    const auto made = at::_scaled_dot_product_flash_attention(a.query, a.key, a.value, 0.0,
                                                              a.causal, false, a.scale);
    return {std::get<0>(made), std::get<1>(made)};
  }
  const auto made = at::_scaled_dot_product_efficient_attention(
      a.query, a.key, a.value, given_mask(a), /*compute_log_sumexp=*/true, 0.0, a.causal, a.scale);
  return {std::get<0>(made), std::get<1>(made).narrow(-1, 0, a.query.size(2))};
}

std::vector<at::Tensor> backward_on_gpu(const Attention& a) {
  if (is_flash(a)) {
    const auto made = at::_scaled_dot_product_flash_attention_backward(
        a.gradient, a.query, a.key, a.value, a.result, a.log_sums, {}, {}, a.query.size(2),
        a.key.size(2), 0.0, a.causal, no_seed(a), no_seed(a), a.scale);
    return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
  }
  const std::int64_t rows = missing(a.query.size(2), kRowsOfSums);
  const at::Tensor sums =
      rows == 0 ? a.log_sums.contiguous() : at::constant_pad_nd(a.log_sums, {0, rows}, kInfinity);
  const auto made = at::_scaled_dot_product_efficient_attention_backward(
      a.gradient, a.query, a.key, a.value, given_mask(a).value_or(at::Tensor()), a.result, sums,
      no_seed(a), no_seed(a), 0.0, {true, true, true, false}, a.causal, a.scale);
  return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
}

}  // namespace

const AttentionKernels& kernels_of_gpus() {
  static constexpr AttentionKernels kKernels{forward_on_gpu, backward_on_gpu};
  return kKernels;
}

}  // namespace heterog::runtime
