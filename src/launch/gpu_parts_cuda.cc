// Makes green contexts, by the driver. In builds with CUDA alone.
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "launch/gpu_parts.h"

namespace heterog::launch {
namespace {

// at::cuda::GreenContext has no way to make two that are apart: each takes the first
// multiprocessors of the GPU. The driver's functions are asked for by name, as the runtime library
// that LibTorch brings does it: the program links no driver.
constexpr unsigned kVersion = 12050;  // streams of green contexts

template <class Function>
Function* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw Error(ErrorKind::kVerification,
                fmt::format("parts of a GPU: its driver has no {}; they need CUDA 12.5", name));
  }
  return reinterpret_cast<Function*>(found);
}

struct Driver {
  decltype(cuDeviceGet)* device = driver_function<decltype(cuDeviceGet)>("cuDeviceGet");
  decltype(cuDeviceGetDevResource)* resource =
      driver_function<decltype(cuDeviceGetDevResource)>("cuDeviceGetDevResource");
  decltype(cuDevSmResourceSplitByCount)* split =
      driver_function<decltype(cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
  decltype(cuDevResourceGenerateDesc)* describe =
      driver_function<decltype(cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc");
  decltype(cuGreenCtxCreate)* create =
      driver_function<decltype(cuGreenCtxCreate)>("cuGreenCtxCreate");
  decltype(cuGreenCtxStreamCreate)* stream =
      driver_function<decltype(cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate");
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void expect_done(c10::Device gpu, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  throw Error(ErrorKind::kVerification, fmt::format("GPU {}: cannot {} (CUDA driver error {})",
                                                    gpu.index(), what, static_cast<int>(result)));
}

// As many as PyTorch has of each kind; then round again.
constexpr std::size_t kStreams = 32;

class GreenContext {
 public:
  GreenContext(c10::Device gpu, CUgreenCtx context) : gpu_(gpu), context_(context) {}

  c10::Stream next(bool urgent) {
    const std::lock_guard lock(mutex_);
    Pool& pool = pools_[urgent ? 1 : 0];
    CUstream& stream = pool.streams[pool.next];
    pool.next = (pool.next + 1) % kStreams;
    if (stream == nullptr) {
      expect_done(gpu_, driver().stream(&stream, context_, CU_STREAM_NON_BLOCKING, urgent ? -1 : 0),
                  "make a stream of a part");
    }
    return c10::cuda::getStreamFromExternal(stream, gpu_.index()).unwrap();
  }

 private:
  struct Pool {
    std::array<CUstream, kStreams> streams{};
    std::size_t next = 0;
  };
  const c10::Device gpu_;
  const CUgreenCtx context_;
  std::mutex mutex_;
  std::array<Pool, 2> pools_;
};

// One descriptor of several groups, which must come from one split.
std::vector<GreenContext*> make_contexts(c10::Device gpu, const std::vector<int>& multiprocessors) {
  cudaSetDevice(gpu.index());  // opens it
  CUdevice device{};
  expect_done(gpu, driver().device(&device, gpu.index()), "be asked for");
  CUdevResource whole{};
  expect_done(gpu, driver().resource(device, &whole, CU_DEV_RESOURCE_TYPE_SM),
              "say its multiprocessors");
  const unsigned group = whole.sm.minSmPartitionSize;
  unsigned count = 0;
  expect_done(gpu, driver().split(nullptr, &count, &whole, nullptr, 0, group), "be split");
  const std::vector<int> taken =
      groups_of_parts(gpu, multiprocessors, static_cast<int>(group), static_cast<int>(count));
  std::vector<CUdevResource> groups(count);
  CUdevResource rest{};
  expect_done(gpu, driver().split(groups.data(), &count, &whole, &rest, 0, group), "be split");
  std::vector<GreenContext*> contexts;
  CUdevResource* next = groups.data();
  for (const int part : taken) {
    CUdevResourceDesc description{};
    expect_done(gpu, driver().describe(&description, next, static_cast<unsigned>(part)),
                "describe a part");
    CUgreenCtx context{};
    expect_done(gpu, driver().create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
                "make a part");
    // Never ended: memory of PyTorch's allocator stays tied to its streams.
    contexts.push_back(new GreenContext(gpu, context));
    next += part;
  }
  return contexts;
}

}  // namespace

std::vector<PartStreams> streams_of_parts(c10::Device gpu,
                                          const std::vector<int>& multiprocessors) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceIndex, std::vector<int>>, std::vector<GreenContext*>> made;
  const std::lock_guard lock(mutex);
  std::vector<GreenContext*>& contexts = made[{gpu.index(), multiprocessors}];
  if (contexts.empty()) contexts = make_contexts(gpu, multiprocessors);
  std::vector<PartStreams> streams;
  for (GreenContext* context : contexts) {
    streams.emplace_back([context](bool urgent) { return context->next(urgent); });
  }
  return streams;
}

}  // namespace heterog::launch
