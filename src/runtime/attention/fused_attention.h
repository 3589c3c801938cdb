// Attention by kernels that never write the weights down.
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

// As run_attention(), where no weights are dropped.
std::vector<at::Tensor> fused_attention(const Attention& a, const AttentionKernels& kernels);

inline constexpr std::int64_t kWidthStep = 8;
inline constexpr std::int64_t kRowBytes = 16;

}  // namespace heterog::runtime
