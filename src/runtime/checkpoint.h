// All that training leaves behind, in one safetensors file that PyTorch reads too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/program.h"
#include "runtime/transport.h"
#include "runtime/worker.h"

namespace heterog::runtime {

// Parameters, buffers and optimizer state by their names in the graph, which for parameters and
// buffers are PyTorch's own; metadata: the step after which they were taken, the graph, the seed.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
};

// Of one rank among processes: every tensor comes from the lowest rank that keeps it to rank 0,
// which writes the file under a temporary name and renames it. All ranks call it together, between
// steps; it returns on every rank once the file is whole. Throws an Error (kVerification) naming
// rank and file if it cannot be written.
void save_checkpoint(const std::string& path, const Job& job, DeviceId rank, const Worker& worker,
                     Transport& transport, const CheckpointInfo& info);
// The same where `resident` gives every tensor that any rank keeps.
void save_checkpoint(const std::string& path, const Job& job,
                     const std::function<at::Tensor(TensorId)>& resident,
                     const CheckpointInfo& info);

// Gives the worker what it keeps. Throws an input error if the file is not a checkpoint of this
// graph and seed, or lacks a tensor.
CheckpointInfo load_checkpoint(const std::string& path, const Job& job, Worker& worker,
                               std::uint64_t seed);

}  // namespace heterog::runtime
