// Runs a plan and the same steps on one device, and compares all that training leaves behind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/plan.h"
#include "runtime/job_ranks.h"
#include "runtime/program.h"
#include "runtime/reference_step.h"
#include "runtime/worker.h"

namespace heterog::runtime {

struct VerifyOptions {
  int steps = 3;
  Floats floats = Floats::kDouble;
  std::uint64_t seed = 0;  // of parameters, data and random operators
  int threads = 1;
  std::vector<at::Device> devices = {};  // one a rank; none: all on the CPU
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

// Random parameters, state, buffers (by tensor id, undefined for all others), and the inputs of a
// step, all of the same seed on every rank.
IdVector<TensorId, at::Tensor> random_residents(const graph::ModelGraph& graph, std::uint64_t seed,
                                                Floats floats);
StepInputs random_inputs(const graph::ModelGraph& graph, std::int64_t batch, std::uint64_t seed,
                         std::int64_t step, Floats floats);

// The job (made with capture_gradients) with its ranks as threads of this process.
Verification verify(const Job& job, const compiler::Plan& plan, const VerifyOptions& options);
// With this process as one rank. Every process compares what its rank has with steps of one device
// that it runs itself; the worst of all ranks is the result in each.
Verification verify_among_processes(const Job& job, const compiler::Plan& plan, const OwnRank& own,
                                    const VerifyOptions& options);

// What a runtime could get wrong, to see that verification finds it.
enum class Fault : std::uint8_t {
  kDropContribution,  // one replica's part of one gradient is left out
  kEqualWeights,      // gradients of unequal slices count alike, as a mean over replicas does it
  kSkipPull,          // one replica keeps an old parameter
};
// Throws an input error if the job has nothing of the kind.
void inject(Job& job, const compiler::Plan& plan, Fault fault);

}  // namespace heterog::runtime
