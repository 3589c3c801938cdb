// The kernels of GPUs (dropout.cu) as functions of the CPU, in place of launch_kernel.h's: every
// thread of a grid, one after the other, on memory of the CPU or of the fake device.
#pragma once

#include <optional>
#include <string>

#include "runtime/gpu/launch_kernel.h"

namespace heterog::runtime::on_gpu {

// Until it ends, launch_kernel() launches on the host. Before and after there are no kernels.
class HostKernels {
 public:
  HostKernels();
  ~HostKernels();
  HostKernels(const HostKernels&) = delete;
  HostKernels& operator=(const HostKernels&) = delete;
};

// Of a kernel, since the latest HostKernels began.
int launches_of(const std::string& name);

// The grid of all launches, which kernels go over several times where it is too small.
void set_grid(std::optional<Grid> grid);

// Numbers of 16 bits as the kernels round them.
float wide_of(at::ScalarType half, unsigned short bits);
unsigned short bits_of(at::ScalarType half, float value);

}  // namespace heterog::runtime::on_gpu
