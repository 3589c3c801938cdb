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

// ---- what attention that drops weights does between its products (attention/dropped_attention.h)
// ----

// Scores of n samples, of which `bias`, [n, H, L, S], is a part: in the operands' type, side by
// side along S; undefined: nothing is added. Elements of the rule are those of a contiguous [n, H,
// L, S], of one block.
struct DroppedWeights {
  at::Tensor products;  // of queries and keys, [n, H, L, S], contiguous, in float32
  at::Tensor bias;
  Attended how;
  KeepRule rule;
};
// `used`, [n, H, L, S], contiguous: what weighs the values. `log_sums`, [n, H, L], contiguous, in
// float32: those of the softmax.
bool drop_weights_on_gpu(const at::Tensor& used, const at::Tensor& log_sums,
                         const DroppedWeights& weights);
// The same `used`, and the gradient of products in the operands' type, from that of `used` in
// float32. All contiguous, but for log_sums.
bool drop_weights_backward_on_gpu(const at::Tensor& used, const at::Tensor& to_products,
                                  const at::Tensor& to_used, const at::Tensor& log_sums,
                                  const DroppedWeights& weights);

}  // namespace heterog::runtime
