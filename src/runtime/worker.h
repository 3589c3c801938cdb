// Runs one device's part of a plan, step by step.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/execute.h"
#include "runtime/program.h"
#include "runtime/transport.h"

namespace heterog::runtime {

struct WorkerOptions {
  at::Device device = at::kCPU;
  Floats floats = Floats::kOwn;
  std::uint64_t seed = 0;  // of the random operators: the same on every rank
  int threads = 1;         // of one operator
  int repeat = 1;          // computes everything so many times: a device that much slower
  bool record = false;     // when each instruction ran
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

struct StepResult {
  std::vector<at::Tensor> captures;  // parallel to Program::captures
  Nanoseconds start = 0;             // by this machine's steady clock
  Nanoseconds duration = 0;
  std::int64_t overwrites = 0;          // operators that wrote their result over an operand
  IdVector<InstructionId, Span> spans;  // empty unless recorded
};

class Worker {
 public:
  // Prepares every operator. Throws an Error (kVerification) if one cannot be.
  Worker(const Job& job, DeviceId device, Transport& transport, const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // What stays between steps: parameters, optimizer state, buffers that this device reads or
  // writes, ascending. All must be given before the first step; they are copied.
  const std::vector<TensorId>& residents() const;
  void set_resident(TensorId tensor, const at::Tensor& value);
  // As the last step left it; valid until the next one.
  at::Tensor resident(TensorId tensor) const;

  // Runs a step; `number` counts from 1. If anything fails, here or at a peer, the transport is
  // aborted and an Error (kVerification) of one line names this rank, its device and the task.
  StepResult step(std::int64_t number, const StepInputs& inputs);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace heterog::runtime
