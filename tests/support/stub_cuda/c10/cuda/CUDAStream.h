// A stream that PyTorch did not make, for tests without CUDA's headers.
#pragma once

#include <c10/core/Stream.h>

#include "cuda_runtime_api.h"

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(Stream stream) : stream_(stream) {}
  Stream unwrap() const { return stream_; }

 private:
  Stream stream_;
};

inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex index) {
  return CUDAStream(
      Stream(Stream::UNSAFE, Device(kCUDA, index), reinterpret_cast<StreamId>(stream)));
}

}  // namespace c10::cuda
