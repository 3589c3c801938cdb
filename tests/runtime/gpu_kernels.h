// The kernels of GPUs as functions of the CPU, and what launches them: every thread of a grid, one
// after the other.
#pragma once

#define __global__ inline

namespace heterog::runtime::on_gpu {

struct Shape {
  unsigned x = 1, y = 1;
};
inline Shape gridDim, blockDim, blockIdx, threadIdx;

#include "runtime/gpu/keep_mask.cu"

template <class Kernel>
void launch(const Shape& grid, const Shape& block, const Kernel& kernel) {
  gridDim = grid, blockDim = block;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel();
    }
  }
}

}  // namespace heterog::runtime::on_gpu
