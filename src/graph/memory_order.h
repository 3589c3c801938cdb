// In which order the elements of a tensor lie in memory, as far as kernels are chosen by it.
#pragma once

#include <span>

#include "graph/types.h"

namespace heterog::graph {

// Whether a tensor of 4 or 5 dimensions has its channels, dimension 1, next to one another: NHWC,
// NDHWC (PyTorch's channels_last and channels_last_3d). `shape` and `strides` are parallel.
bool is_channels_last(std::span<const Affine> shape, std::span<const Affine> strides);

}  // namespace heterog::graph
