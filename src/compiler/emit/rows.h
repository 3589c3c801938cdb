// Gradients of embeddings, which may travel as (indices, rows) (decision 4): a push, or an
// all-gather padded to the longest slice, and the sum on the receiving device, say so by their
// encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/emit/emission.h"
#include "compiler/emit/sums.h"
#include "cost/problem.h"

namespace heterog::compiler {

// The part of a gradient that a slice makes: a row for each look-up (what is looked up twice counts
// twice).
struct SparseRows {
  std::int64_t count = 0;
  Bytes bytes = 0;  // of the rows and their indices; may be more than those of the whole
};

// Nothing where the gradient is not that of look-ups alone: a table that several look-ups share has
// the rows of all, but one that is also multiplied by (tied to an output layer) has a gradient that
// is full.
std::optional<SparseRows> sparse_rows(const cost::Problem& problem, TensorId gradient,
                                      std::int64_t samples);

// Pushes to `root`, which is one of the locations (one per device), and a sum there. `rows`: those
// of each, parallel to them.
Location sum_rows_at(Emission& e, TensorId tensor, std::span<const Location> locations,
                     std::span<const SparseRows> rows, DeviceId root, InPlace in_place);
// From the one device that makes the gradient to another, which makes the whole of its rows.
Location rows_arrived_at(Emission& e, TensorId tensor, const Location& made, const SparseRows& rows,
                         DeviceId device);
// In place of an all-reduce: one all-gather of as many rows from each device (short ones are
// padded), which every device then adds to its own gradient.
std::vector<Location> gather_rows(Emission& e, TensorId tensor, std::span<const Location> locations,
                                  const SparseRows& rows, InPlace in_place);

}  // namespace heterog::compiler
