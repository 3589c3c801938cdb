// Streams and pinned memory for copies between a device and the host.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

namespace heterog::comm {

// Host memory, not initialised, that a device copies to and from by itself.
at::Tensor pinned_like(const at::Tensor& value);

// The stream on which the calling thread launches.
c10::Stream current_stream(at::Device device);

}  // namespace heterog::comm
