// Runs a whole training step in lockstep over the slices of a batch, as the split analysis says.
#pragma once

#include <ATen/ATen.h>

#include "graph/split.h"
#include "split_proof/execute.h"
#include "split_proof/slices.h"

namespace heterog::split_proof {

using Values = IdVector<TensorId, at::Tensor>;

struct StepOptions {
  SliceSizes sizes;  // one slice: the plain step on the whole batch
  BatchNorm batch_norm = BatchNorm::kTraining;
  // The batch is this many times the same samples, dropout masks included.
  std::int64_t repeats = 1;
};

// Whole values, in double precision, of every tensor that no op makes.
Values random_sources(const graph::ModelGraph& graph, const StepOptions& options);

// Whole values of what the step gives: gradients and outputs; the rest is left undefined. Reduces
// where an op reads reduced values, gathers where it runs whole. Masks of dropouts depend on the op
// and the place in the whole batch, not on the slices.
Values run_step(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits,
                const Values& sources, const StepOptions& options);

}  // namespace heterog::split_proof
