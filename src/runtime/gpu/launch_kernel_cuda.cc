// Loads and launches our kernels, by the CUDA runtime that LibTorch brings. In builds with CUDA
// alone.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gpu/compiled_kernels.h"
#include "runtime/gpu/launch_kernel.h"

namespace heterog::runtime {
namespace {

// For the current device; null: none was compiled for it, or its driver refuses it.
cudaKernel_t load(int device, const std::string& name) {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  for (const CompiledKernels& one : kDropoutKernels) {
    if (one.major != major || one.minor > minor) continue;
    cudaLibrary_t library = nullptr;  // stays for as long as the process
    cudaKernel_t kernel = nullptr;
    if (cudaLibraryLoadData(&library, one.code, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
            cudaSuccess &&
        cudaLibraryGetKernel(&kernel, library, name.c_str()) == cudaSuccess) {
      return kernel;
    }
    cudaGetLastError();  // nobody else shall find it
  }
  return nullptr;
}

cudaKernel_t kernel_of(int device, const std::string& name) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::pair<int, std::string>, cudaKernel_t>;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = loaded->try_emplace({device, name}, nullptr);
  if (is_new) at->second = load(device, name);
  return at->second;
}

}  // namespace

bool launch_kernel(const KernelCall& call) {
  const at::Device device = call.tensors.front().device();
  if (!device.is_cuda()) return false;
  const c10::DeviceGuard on_its_device(device);
  const cudaKernel_t kernel = kernel_of(device.index(), call.name);
  if (kernel == nullptr) return false;
  std::vector<void*> places;
  for (const at::Tensor& tensor : call.tensors) {
    places.push_back(tensor.defined() ? tensor.data_ptr() : nullptr);
  }
  std::vector<void*> arguments;
  for (void*& place : places) arguments.push_back(&place);
  arguments.insert(arguments.end(), call.more.begin(), call.more.end());
  const c10::Stream stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device);
  const cudaError_t error = cudaLaunchKernel(
      reinterpret_cast<const void*>(kernel), dim3(call.grid.x, call.grid.y), dim3(kThreadsOfBlock),
      arguments.data(), 0, static_cast<cudaStream_t>(stream.native_handle()));
  TORCH_CHECK(error == cudaSuccess, call.name, ": ", cudaGetErrorString(error));
  return true;
}

}  // namespace heterog::runtime
