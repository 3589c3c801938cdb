// What stands for the kernels in a build without CUDA.
#include "runtime/gpu/launch_kernel.h"

namespace heterog::runtime {

bool launch_kernel(const KernelCall&) { return false; }

}  // namespace heterog::runtime
