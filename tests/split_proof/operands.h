// Random operands for one op of a graph, whole and as its slices would read them.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "graph/split.h"
#include "split_proof/slices.h"

namespace heterog::split_proof {

struct OperandValues {
  at::Tensor whole;
  std::vector<at::Tensor> slices;
};

enum class Content {
  kRandom,    // every sample differs
  kRepeated,  // every slice has the same content: what is local to a slice holds for the whole
};

// A plausible value of operand `index` of `op`: numbers are normal, or in (0.1, 0.9) where the
// operator wants positive ones; row indices are in range, some labels are the ignored one.
at::Tensor random_operand(const graph::ModelGraph& graph, OpId op, std::size_t index,
                          std::int64_t samples);

// Row numbers 0 … n−1 along the dimension that depends on the batch, alike along the others.
at::Tensor row_numbers(std::span<const graph::Affine> shape, std::int64_t samples);

// Parallel to graph.inputs(op). Uses ATen's default generator: seed it first.
std::vector<OperandValues> random_operands(const graph::ModelGraph& graph,
                                           const graph::SplitAnalysis& splits, OpId op,
                                           const SliceSizes& sizes, Content content);

}  // namespace heterog::split_proof
