// Runs a plan and the same steps on one device, and compares all that training leaves behind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/plan.h"
#include "runtime/check/reference_step.h"
#include "runtime/exec/worker.h"
#include "runtime/program/program.h"
#include "runtime/ranks/job_ranks.h"

namespace heterog::runtime {

struct VerifyOptions {
  int steps = 3;
  Floats floats = Floats::kDouble;
  bool tf32 = false;       // on a GPU, where the graph lets it: its rounding is no fault of a plan
  std::uint64_t seed = 0;  // of parameters, data and random operators
  int threads = 1;
  std::vector<at::Device> devices = {};  // one a rank; none: all on the CPU
  // Of ranks that are parts of GPUs, parallel to `devices`, or none (WorkerOptions::streams).
  std::vector<std::function<c10::Stream(bool urgent)>> streams = {};
  std::function<bool()> stopped = {};  // asked before each step: whether to give up; empty: never
};

// How far a tensor is from what one device has, relative to its norm; one whose norm is below 1e-6
// of that of all tensors of its kind together is held to that norm instead (decision 12).
// Integers: the share of elements that differ.
struct Difference {
  std::string kind;  // "loss", "gradient", "parameter", "buffer", "optimizer state"
  std::string tensor;
  std::string device;
  std::int64_t step = 0;
  double relative = 0;
};

// The worst of each kind, in the order above.
struct Verification {
  std::int64_t compared = 0;  // tensors
  std::vector<Difference> worst;
  ReferenceStep::Exceptions
      exceptions;  // of the one device, which runs all else on the whole batch
  double worst_relative() const;
};

// The job (made with capture_gradients) with its ranks as threads of this process.
Verification verify(const Job& job, const compiler::Plan& plan, const VerifyOptions& options);
// With this process as one rank. Every process compares what its rank has with steps of one device
// that it runs itself; the worst of all ranks is the result in each.
Verification verify_among_processes(const Job& job, const compiler::Plan& plan, const OwnRank& own,
                                    const VerifyOptions& options);

}  // namespace heterog::runtime
