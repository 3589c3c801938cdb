// Dropout by the kernels of dropout.cu. False from each function: there is no such kernel here, and
// nothing is done.
#pragma once

#include <ATen/ATen.h>

#include "runtime/gpu/kernel_arguments.h"

namespace heterog::runtime {

// Fills `mask`, bool and contiguous.
bool fill_kept_on_gpu(const at::Tensor& mask, const KeepRule& rule);

// The same for `kept`, and `out` becomes x · kept · scale, in x's type, with the bits of the two
// products one after the other. All of them are contiguous and of the same sizes.
bool drop_on_gpu(const at::Tensor& out, const at::Tensor& kept, const at::Tensor& x, double scale,
                 const KeepRule& rule);

// ---- what attention that drops weights does beside the kernel of attention (fused_attention.h)
// ---- Sums [N, H, L] are float32; whatever has a last dimension beside lies side by side along it.

// `out`, [N, H, L, S]: −∞ where a weight is dropped, else `bias`, which has its sizes and type;
// undefined: 0. Elements of the rule are those of a contiguous [N, H, L, S], of one block.
bool bias_of_kept_on_gpu(const at::Tensor& out, const at::Tensor& bias, const KeepRule& rule);

// result [N, H, L, E] · c, c = exp(kept − max(all, least) − log_rate); 0 where c is 0.
struct Shares {
  at::Tensor kept;      // sums over weights that stay
  at::Tensor all;       // over all
  double log_rate = 0;  // logarithm of 1 − rate
};
bool weigh_result_on_gpu(const at::Tensor& result, const Shares& shares, double least);

// `weighed` = gradient · c; `kept` and `all`, contiguous, are the sums with +∞ in place of −∞.
struct WeighedGradient {
  at::Tensor weighed, kept, all;
};
bool weigh_gradient_on_gpu(const WeighedGradient& made, const at::Tensor& gradient,
                           const Shares& shares);

}  // namespace heterog::runtime
