// Attention that drops weights, on a GPU.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "runtime/attention/attention.h"

namespace heterog::runtime {

// As run_attention(), for rates above 0 and below 1. Scores and weights are written down, so many
// samples at a time as cost/weights_at_once.h says: products by the library of the device, scores
// in single precision, and between them one kernel each way, which makes the softmax, draws what
// stays and takes the gradient back (runtime/gpu/dropout_on_gpu.h). The kernels of fused attention
// draw by a generator of their own, which no other device has. Nothing: this device has no such
// kernels.
std::optional<std::vector<at::Tensor>> attention_that_drops(const Attention& a,
                                                            const RandomStream& stream,
                                                            const Cut& cut);

}  // namespace heterog::runtime
