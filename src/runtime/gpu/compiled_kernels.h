// Kernels as NVRTC compiled them (cmake/compile_kernels.py). In builds with CUDA alone.
#pragma once

#include <span>

namespace heterog::runtime {

// Code that GPUs of compute capability major.minor run, and those of a higher minor one.
struct CompiledKernels {
  int major = 0;
  int minor = 0;
  const unsigned char* code = nullptr;
};

extern const std::span<const CompiledKernels> kDropoutKernels;

}  // namespace heterog::runtime
