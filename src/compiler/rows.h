// Gradients of embeddings, which may travel as (indices, rows) (decision 4): a push, or an
// all-gather padded to the longest slice, and the sum on the receiving device, say so by their
// encoding.
#pragma once

#include <cstdint>
#include <optional>

#include "cost/problem.h"

namespace heterog::compiler {

// What a slice makes of a gradient: a row for each look-up (what is looked up twice counts twice).
struct SparseRows {
  std::int64_t count = 0;
  Bytes bytes = 0;  // of the rows and their indices; may be more than those of the whole
};

// Nothing where the gradient is not that of look-ups alone: a table that several look-ups share has
// the rows of all, but one that is also multiplied by (tied to an output layer) has a gradient that
// is full.
std::optional<SparseRows> sparse_rows(const cost::Problem& problem, TensorId gradient,
                                      std::int64_t samples);

}  // namespace heterog::compiler
