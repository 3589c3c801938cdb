// Loads and launches the kernel, by the CUDA runtime that LibTorch brings. In builds with CUDA
// alone.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "runtime/gpu/compiled_kernels.h"
#include "runtime/gpu/keep_mask_on_gpu.h"

namespace heterog::runtime {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMostBlocks = 65535;  // along each dimension of a grid

// For the current device; null: none was compiled for it, or its driver refuses it.
cudaKernel_t load(int device) {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaKernel_t kernel = nullptr;
  for (const CompiledKernel& one : kKeepMaskKernels) {
    if (one.major != major || one.minor > minor) continue;
    cudaLibrary_t library = nullptr;  // stays for as long as the process
    if (cudaLibraryLoadData(&library, one.code, nullptr, nullptr, 0, nullptr, nullptr, 0) !=
            cudaSuccess ||
        cudaLibraryGetKernel(&kernel, library, "keep_mask") != cudaSuccess) {
      cudaGetLastError();  // nobody else shall find it
      kernel = nullptr;
    }
  }
  return kernel;
}

cudaKernel_t kernel_of(int device) {
  struct Loaded {
    std::once_flag once;
    cudaKernel_t kernel = nullptr;
  };
  static std::array<Loaded, 64> loaded;
  if (device < 0 || static_cast<std::size_t>(device) >= loaded.size()) return nullptr;
  Loaded& one = loaded[static_cast<std::size_t>(device)];
  std::call_once(one.once, [&] { one.kernel = load(device); });
  return one.kernel;
}

}  // namespace

bool fill_kept_on_gpu(const at::Tensor& mask, const KeepRule& rule) {
  if (!mask.is_cuda()) return false;
  const c10::DeviceGuard on_its_device(mask.device());
  const cudaKernel_t kernel = kernel_of(mask.get_device());
  if (kernel == nullptr) return false;
  bool* kept = mask.data_ptr<bool>();
  unsigned long long key = rule.key, least = rule.least;
  long long blocks = rule.blocks, length = rule.length, stride = rule.stride, offset = rule.offset;
  void* arguments[] = {&kept, &key, &least, &blocks, &length, &stride, &offset};
  const auto along = [](std::int64_t count) {
    return static_cast<unsigned>(std::clamp<std::int64_t>(count, 1, kMostBlocks));
  };
  const dim3 grid(along((rule.length + kThreads - 1) / kThreads), along(rule.blocks));
  const c10::Stream stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(mask.device());
  const cudaError_t error =
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kThreads), arguments, 0,
                       static_cast<cudaStream_t>(stream.native_handle()));
  TORCH_CHECK(error == cudaSuccess, "keep_mask: ", cudaGetErrorString(error));
  return true;
}

}  // namespace heterog::runtime
