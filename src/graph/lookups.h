// Gradients of tables that rows were looked up in, as those rows.
#pragma once

#include <optional>

#include "base/units.h"
#include "graph/model_graph.h"

namespace heterog::graph {

// All rows that some samples looked up, repeats counted.
struct Lookups {
  std::int64_t rows = 0;
  Bytes index_bytes = 0;  // of the numbers that say which they are
  Bytes row_bytes = 0;
};

// The look-ups that `samples` samples add to the gradient; nothing if it is not made of look-ups
// alone, a sum of them where several share the table.
std::optional<Lookups> lookups(const ModelGraph& graph, TensorId gradient, std::int64_t samples);

}  // namespace heterog::graph
