// Attention by kernels that never write the weights down, and dropout of weights by the same
// kernels.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "runtime/attention/attention.h"

namespace heterog::runtime {

// The kernels of a device, without dropout. Operands are as fused_attention() makes them: widths
// are multiples of kWidthStep; a mask has the type of the query and the sizes [N, H, L, S], its
// rows are dense and begin at multiples of 16 bytes. Sums of a query that looks at nothing are −∞
// where they are made; +∞ where they are taken, which makes all its weights 0.
struct AttentionKernels {
  std::vector<at::Tensor> (*forward)(const Attention&);   // → result, log_sums
  std::vector<at::Tensor> (*backward)(const Attention&);  // → gradients of query, key, value
};

// PyTorch's for GPUs: flash attention where its conditions hold, else the memory-efficient one.
const AttentionKernels& kernels_of_gpus();

// As run_attention(), for rates below 1.
//
// Dropout needs no kernel of its own. With P = softmax(x) and D the mask of what stays, 1 / (1 − r)
// or 0, let P' = softmax(x + log D'), D' = 1 or 0: a bias of −∞ where a weight is dropped. Row by
// row P ∘ D = c P', c = exp(log_sums' − log_sums) / (1 − r). So
//   (P ∘ D) V = c (P' V),
// and with δ = rowsum(g ∘ result) the gradient of scores, P ∘ (D ∘ gVᵀ − δ) (Dao et al. 2022), is
// P' ∘ (c g) Vᵀ − P δ: what the kernel gives for (c g, V, P') with a result of zeros, and what it
// gives for (g, zeros, P) with the result itself. On GPUs the bias, c and c g are made by kernels
// of ours (runtime/gpu/dropout_on_gpu.h), elsewhere by tensor operations.
std::vector<at::Tensor> fused_attention(const Attention& a, const RandomStream& stream,
                                        const Cut& cut, const AttentionKernels& kernels);

inline constexpr std::int64_t kWidthStep = 8;
inline constexpr std::int64_t kRowBytes = 16;

}  // namespace heterog::runtime
