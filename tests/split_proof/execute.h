// How the proofs run operators: in double precision on the CPU.
#pragma once

#include "runtime/attention/attention.h"
#include "runtime/kernels/execute.h"
#include "runtime/program/draws.h"

namespace heterog::split_proof {

using runtime::BatchNorm;
using runtime::Samples;
using runtime::sizes_at;

// float16 … float64 → float64; the others as they are.
inline at::ScalarType executed_dtype(graph::DType dtype) {
  return runtime::scalar_type(dtype, runtime::Floats::kDouble);
}

// Attention whose dropout no kernel of CPUs has; of the whole batch, `operands` hold `cut`.
inline bool drops_weights(const graph::ModelGraph& graph, OpId op) {
  return runtime::is_attention(graph, op) && runtime::dropped_share(graph, op) > 0;
}

inline std::vector<at::Tensor> execute(const graph::ModelGraph& graph, OpId op,
                                       std::span<const at::Tensor> operands, Samples samples,
                                       BatchNorm batch_norm = BatchNorm::kTraining,
                                       const runtime::Cut& cut = {}) {
  if (drops_weights(graph, op)) {
    return runtime::run_attention(graph, op, operands, {7, 1, runtime::drawn_for(graph, op)}, cut);
  }
  return runtime::execute(graph, op, operands, samples,
                          {.floats = runtime::Floats::kDouble, .batch_norm = batch_norm});
}

}  // namespace heterog::split_proof
