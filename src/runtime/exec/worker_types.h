// Types of a worker's interface: its options, the inputs of a step, and its result.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/kernels/execute.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

struct WorkerOptions {
  at::Device device = at::kCPU;
  // Its streams, where the rank has a part of it (launch/gpu_parts.h); empty: of PyTorch's pool.
  std::function<c10::Stream(bool urgent)> streams = {};
  Floats floats = Floats::kOwn;
  bool tf32 = true;           // on a GPU, where the graph lets it
  std::uint64_t seed = 0;     // of the random operators: the same on every rank
  int threads = 1;            // of one operator
  int repeat = 1;             // computes everything so many times: a device that much slower
  bool record = false;        // when each instruction ran
  bool count_memory = false;  // of its tensors; of a rank that has its process to itself
  // Called by the queue's thread before an instruction runs; for tests, which delay it here.
  std::function<void(const Instruction&)> before_each = {};
};

// Inputs of a step: of the whole batch, also where a device needs a part.
using StepInputs = std::vector<std::pair<TensorId, at::Tensor>>;

// Nanoseconds from the start of the step on this rank.
struct Span {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

// Memory of a rank's tensors.
struct RankMemory {
  Bytes most = 0;      // at the peak of a step
  Bytes reserved = 0;  // by the device's allocator, for tensors to come too; 0 on CPUs
  // Parts of it that stay between steps.
  Bytes parameters = 0;
  Bytes optimizer_state = 0;
  Bytes buffers = 0;  // of the model
};

struct StepResult {
  std::vector<at::Tensor> captures;  // parallel to Program::captures
  Nanoseconds start = 0;             // by this machine's steady clock
  Nanoseconds duration = 0;
  std::int64_t overwrites = 0;          // operators that wrote their result over an operand
  std::int64_t copied_ahead = 0;        // inputs that the step before had copied
  RankMemory memory;                    // if it was counted
  IdVector<InstructionId, Span> spans;  // empty unless recorded
};

}  // namespace heterog::runtime
