// Gradients of embeddings that may travel as (indices, rows) (decision 4). In a plan, a kPush, a
// kAllReduce, which is then an all-gather, padded to the longest slice, and the kSum on the
// receiving device, which adds them up, say so by their payload.
#pragma once

#include <cstdint>

#include "cost/problem.h"

namespace heterog::compiler {

// What the gradient made from `samples` samples takes as rows and their indices, an index for each
// row that the slice looked up (one looked up twice counts twice). Nothing shorter than the whole
// exists, so its size is given, where it is no more or where the gradient is not that of lookups
// alone: a table that several lookups share has the rows of all, but one that is also multiplied by
// (tied to an output layer) has a gradient that is full.
Bytes row_bytes(const cost::Problem& problem, TensorId gradient, std::int64_t samples);

}  // namespace heterog::compiler
