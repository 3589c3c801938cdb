// Operators that draw random numbers, by where their elements stand in the whole batch.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "graph/split.h"
#include "runtime/kernels/execute.h"
#include "runtime/kernels/random.h"

namespace heterog::runtime {

// Samples [begin, end) of `batch`, and the stream that they draw from.
struct DrawnSlice {
  RandomStream stream;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t batch = 0;
};

// How the elements of the slice lie in the whole: as `rule` has it, that of what the op makes.
Cut drawn_cut(const graph::SplitRule& rule, const DrawnSlice& slice);

// The results of an op that is_drawn_by_counter() and is no attention. `call`: prepared for the
// slice, for its arguments and never called; `operands`: parallel to graph.inputs(op).
// Distributions are PyTorch's, the numbers are not; results lie in memory row by row, but for those
// that take after an operand.
std::vector<at::Tensor> draw(const graph::ModelGraph& graph, const OperatorCall& call,
                             std::span<const at::Tensor> operands, const DrawnSlice& slice,
                             const graph::SplitRule& rule, const ExecuteOptions& options);

}  // namespace heterog::runtime
