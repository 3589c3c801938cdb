// The slow, obvious step: one device, the whole batch, op after op. What a plan is compared with.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "runtime/exec/worker.h"
#include "runtime/kernels/execute.h"
#include "runtime/kernels/memory_order.h"

namespace heterog::runtime {

// The samples on which a batch normalisation takes its statistics one after the other.
struct NormalisedSlices {
  struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    friend auto operator<=>(const Interval&, const Interval&) = default;
  };
  std::vector<Interval> slices;  // ascending; empty: the op runs on the whole batch
  std::int64_t outer = 1;        // the first dimension holds outer × samples
};
// Batch normalisation in training has the statistics of the plan's slices (docs/design.md §4.4),
// so these operators, which are known by name, run slice after slice on the one device too. It is
// all that the reference is told of a plan.
IdVector<OpId, NormalisedSlices> normalised_slices(const cost::Problem& problem,
                                                   const compiler::Plan& plan);

// Shares no code with rank programs, and knows no split rules: an op that is cut wrongly there is
// run on the whole batch here. Two exceptions: batch normalisation (above), and operators that draw
// random numbers, which follow from the element's place in the whole batch.
class ReferenceStep {
 public:
  struct Options {
    std::int64_t batch = 1;
    Floats floats = Floats::kOwn;
    std::uint64_t seed = 0;  // of the random operators
  };
  ReferenceStep(const graph::ModelGraph& graph, IdVector<OpId, NormalisedSlices> normalised,
                const Options& options);

  void set_resident(TensorId tensor, const at::Tensor& value) {
    residents_[tensor] = laid_as(graph_.tensor(tensor), value);
  }
  // As the last step left it.
  const at::Tensor& resident(TensorId tensor) const { return residents_[tensor]; }

  struct Result {
    double loss = 0;
    std::vector<std::pair<TensorId, at::Tensor>> gradients;
  };
  // Throws an Error (kVerification) if an op other than the backward of a batch normalisation reads
  // statistics of slices: one device has no such values.
  Result step(std::int64_t number, const StepInputs& inputs);

  // How many ops are exceptions.
  struct Exceptions {
    std::int64_t batch_norms = 0;  // per slice; forward
    std::int64_t random = 0;       // by counter
  };
  Exceptions exceptions() const;

 private:
  void run(OpId op);
  void run_whole(OpId op);
  void run_views(OpId op);
  void normalise(OpId op);
  void draw(OpId op);
  void attend(OpId op);
  bool reads_statistics(OpId op) const;

  const graph::ModelGraph& graph_;
  const IdVector<OpId, NormalisedSlices> normalised_;
  const Options options_;
  const IdVector<OpId, std::vector<TensorId>> dead_;
  IdVector<TensorId, at::Tensor> residents_;
  IdVector<TensorId, at::Tensor> values_;                   // of the whole batch
  IdVector<TensorId, std::vector<at::Tensor>> statistics_;  // a slice each
  std::int64_t step_ = 0;
};

}  // namespace heterog::runtime
