// Plausible random values for the operands of single operators.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/model_graph.h"
#include "runtime/kernels/execute.h"

namespace heterog::runtime {

// A value of `sizes` for operand `index` of `op`: numbers are normal, or in (0.1, 0.9) where the
// operator wants positive ones; row indices are in the range that the op has at `samples`, some
// labels are the ignored one. Uses ATen's default generator: seed it first.
struct OperandSpec {
  std::size_t index = 0;
  std::int64_t samples = 0;
  std::vector<std::int64_t> sizes;
  Floats floats = Floats::kOwn;
};
at::Tensor random_operand(const graph::ModelGraph& graph, OpId op, const OperandSpec& spec);

// The indices that the backward of a pooling reads: those that its forward gives for `x`. Nothing
// for other operators.
std::optional<at::Tensor> pooling_indices(const graph::ModelGraph& graph, OpId op,
                                          const at::Tensor& x);

// All operands of an op at `samples` samples, parallel to graph.inputs(op). An operand that views
// another tensor does so here: it is made by the same chain of alias ops, so that it lies in memory
// as it would in a step.
std::vector<at::Tensor> random_operands(const graph::ModelGraph& graph, OpId op,
                                        std::int64_t samples, at::Device device);

}  // namespace heterog::runtime
