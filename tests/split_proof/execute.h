// How the proofs run operators: in double precision on the CPU.
#pragma once

#include "runtime/exec/execute.h"

namespace heterog::split_proof {

using runtime::BatchNorm;
using runtime::Samples;
using runtime::sizes_at;

// float16 … float64 → float64; the others as they are.
inline at::ScalarType executed_dtype(graph::DType dtype) {
  return runtime::scalar_type(dtype, runtime::Floats::kDouble);
}

inline std::vector<at::Tensor> execute(const graph::ModelGraph& graph, OpId op,
                                       std::span<const at::Tensor> operands, Samples samples,
                                       BatchNorm batch_norm = BatchNorm::kTraining) {
  return runtime::execute(graph, op, operands, samples,
                          {.floats = runtime::Floats::kDouble, .batch_norm = batch_norm});
}

}  // namespace heterog::split_proof
