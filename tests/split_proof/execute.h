// Runs operators of a graph through the ATen dispatcher, in double precision on the CPU.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::split_proof {

// Sample counts: that of the slice for sizes, that of the whole batch for arithmetic scalars.
struct Samples {
  std::int64_t slice = 0;
  std::int64_t whole = 0;
};

// How normalisation layers behave.
enum class BatchNorm { kTraining, kInference };

// `operands`: parallel to graph.inputs(op). Results flat, undefined ones undefined. Floating types
// named by arguments become float64.
std::vector<at::Tensor> execute(const graph::ModelGraph& graph, OpId op,
                                std::span<const at::Tensor> operands, Samples samples,
                                BatchNorm batch_norm = BatchNorm::kTraining);

// float16 … float64 → float64; the others as they are.
at::ScalarType executed_dtype(graph::DType dtype);
std::vector<std::int64_t> sizes_at(std::span<const graph::Affine> shape, std::int64_t samples);

}  // namespace heterog::split_proof
