// Gradients in the compressed form that the user allows (decision 22): what moves, how long that
// takes, and the memory that it needs.
#pragma once

#include <span>

#include "compiler/emit/emission.h"

namespace heterog::compiler {

// How a collective moves what it adds up.
struct Moved {
  cost::CollectiveCost cost;  // with the work of the slowest member
  Bytes bytes = 0;            // in the form in which they move
  Bytes scratch = 0;          // of each device: the compressed form
};

// A gradient, and what becomes of it.
struct Compressed {
  TensorId tensor;
  cost::Compression compression = {};
};

// All of them in one all-reduce over `devices` (ascending), or in two, where some are PowerSGD's.
// Of gradients that are not compressed it is that of their bytes.
Moved compressed_all_reduce(Emission& e, std::span<const Compressed> gradients,
                            const std::vector<DeviceId>& devices);
// In a reduce-scatter that moves `padded` bytes in all.
Moved compressed_scatter(Emission& e, std::span<const Compressed> gradients,
                         const std::vector<DeviceId>& devices, Bytes padded);

// The longest that any of the devices takes for it.
Nanoseconds slowest_compression(const Emission& e, std::span<const DeviceId> devices,
                                const cost::CompressionWork& work);

// The device keeps what the gradient's compressor needs from step to step: `bytes` of it.
void keep_compression_state(Emission& e, DeviceId device, Bytes bytes);

}  // namespace heterog::compiler
