// All that training leaves behind, in one safetensors file that PyTorch reads too.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/ranks/job_ranks.h"

namespace heterog::runtime {

// No run has more steps, so that numbers of steps can be added.
inline constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

// Parameters, buffers and optimizer state by their names in the graph, which for parameters and
// buffers are PyTorch's own; metadata: the step after which they were taken, the graph, the seed.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
};

// The tensors come to rank 0 one after another, whose process writes each before the next comes,
// under a temporary name, and renames the file. All processes call it together, between steps; it
// returns in every one once the file is whole. Throws an Error (kVerification) naming rank and file
// if it cannot be written.
void save_checkpoint(const std::string& path, Ranks& ranks, const CheckpointInfo& info);

// Gives the ranks of this process what they keep, one tensor after another, once all of the file
// has been checked. Throws an input error if it is not a checkpoint of this graph and seed, is
// damaged, or lacks a tensor.
CheckpointInfo load_checkpoint(const std::string& path, Ranks& ranks, std::uint64_t seed);

}  // namespace heterog::runtime
