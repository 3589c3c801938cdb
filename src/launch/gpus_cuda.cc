// Asks the CUDA runtime. In builds with CUDA alone.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/check.h"
#include "base/text.h"
#include "launch/gpus.h"

namespace heterog::launch {
namespace {

// What CUDA answered when it was first asked, and that only after it has been told that a rank's
// streams must not share a queue of the device: by default there are eight for all streams, and
// what waits for another rank at the head of one would hold up what it is to be waited for behind
// it.
struct Count {
  cudaError_t error = cudaSuccess;
  int gpus = 0;
};

const Count& count_gpus() {
  static const Count count = [] {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    Count asked;
    asked.error = cudaGetDeviceCount(&asked.gpus);
    if (asked.error != cudaSuccess) asked.gpus = 0;
    return asked;
  }();
  return count;
}

std::string id_of(const cudaUUID_t& uuid) {
  std::string id;
  for (const char byte : uuid.bytes) {
    id += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  return id;
}

}  // namespace

std::vector<Gpu> visible_gpus() {
  std::vector<Gpu> gpus;
  for (int index = 0; index < count_gpus().gpus; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) break;
    gpus.push_back({gpu_type(printable(properties.name)),
                    static_cast<Bytes>(properties.totalGlobalMem), id_of(properties.uuid),
                    properties.multiProcessorCount});
  }
  return gpus;
}

Bytes free_memory(std::size_t index) {
  std::size_t free = 0, total = 0;
  cudaError_t error = cudaSetDevice(static_cast<int>(index));
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) {
    throw Error(ErrorKind::kVerification, fmt::format("GPU {}: cannot be used ({})", index,
                                                      printable(cudaGetErrorString(error))));
  }
  return static_cast<Bytes>(free);
}

std::string no_gpu_reason() {
  const cudaError_t error = count_gpus().error;
  if (error == cudaSuccess || error == cudaErrorNoDevice) return "there is no GPU here";
  return fmt::format("no GPU can be used here ({})", printable(cudaGetErrorString(error)));
}

}  // namespace heterog::launch
