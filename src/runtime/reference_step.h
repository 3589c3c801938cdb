// The slow, obvious step: one device, the whole batch, op after op. What a plan is compared with.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "runtime/execute.h"
#include "runtime/worker.h"

namespace heterog::runtime {

// Shares no code with rank programs. Batch statistics are those of the slices that the plan makes
// (DESIGN §4): an op that keeps values of its slice runs slice after slice, on this one device.
class ReferenceStep {
 public:
  struct Options {
    Floats floats = Floats::kOwn;
    std::uint64_t seed = 0;  // of the random operators
  };
  ReferenceStep(const cost::Problem& problem, const compiler::Plan& plan, const Options& options);

  void set_resident(TensorId tensor, const at::Tensor& value) { residents_[tensor] = value; }
  // As the last step left it.
  const at::Tensor& resident(TensorId tensor) const { return residents_[tensor]; }

  struct Result {
    double loss = 0;
    std::vector<std::pair<TensorId, at::Tensor>> gradients;
  };
  Result step(std::int64_t number, const StepInputs& inputs);

 private:
  struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    friend auto operator<=>(const Interval&, const Interval&) = default;
  };
  void run(OpId op);
  void run_whole(OpId op);
  void run_slices(OpId op, const std::vector<Interval>& slices);
  void draw(OpId op);

  const cost::Problem& problem_;
  const graph::ModelGraph& graph_;
  Options options_;
  IdVector<OpId, std::vector<Interval>> slices_;  // of the ops that are local to slices
  IdVector<OpId, std::vector<TensorId>> dead_;
  IdVector<TensorId, at::Tensor> residents_;
  IdVector<TensorId, at::Tensor> values_;              // of the whole batch
  IdVector<TensorId, std::vector<at::Tensor>> local_;  // a slice each
  std::int64_t step_ = 0;
};

}  // namespace heterog::runtime
