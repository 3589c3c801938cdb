// What stands for the kernel in a build without CUDA.
#include "runtime/gpu/keep_mask_on_gpu.h"

namespace heterog::runtime {

bool fill_kept_on_gpu(const at::Tensor&, const KeepRule&) { return false; }

}  // namespace heterog::runtime
