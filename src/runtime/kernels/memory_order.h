// Puts tensors that outlive a step, or come into it, in the order in memory that the graph says.
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

}  // namespace heterog::runtime
