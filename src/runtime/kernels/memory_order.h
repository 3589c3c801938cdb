// In which order the elements of tensors lie in memory: as the graph says of those that outlive a
// step, or come into it, and as kernels want it.
#pragma once

#include <ATen/ATen.h>

#include "graph/model_graph.h"

namespace heterog::runtime {

// `value`, dense, with its channels last where those of `tensor` are; itself where it lies so.
inline at::Tensor laid_as(const graph::Tensor& tensor, const at::Tensor& value) {
  const bool volume = value.dim() == 5;
  if (!tensor.channels_last || (value.dim() != 4 && !volume)) return value.contiguous();
  return value.contiguous(volume ? at::MemoryFormat::ChannelsLast3d
                                 : at::MemoryFormat::ChannelsLast);
}

// Whether what lies along the last dimension lies side by side.
inline bool has_dense_rows(const at::Tensor& value) {
  return value.dim() == 0 || value.size(-1) <= 1 || value.stride(-1) == 1;
}

}  // namespace heterog::runtime
