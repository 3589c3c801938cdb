// Shapes and arguments of operators, in few letters.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::cost {

inline constexpr graph::Affine kBatch{1, 0};
inline graph::Affine size(std::int64_t value) { return {0, value}; }

inline graph::Value ints(std::initializer_list<std::int64_t> values) {
  std::vector<graph::Value> items;
  for (std::int64_t value : values) items.push_back(graph::int_value(value));
  return graph::list_value(std::move(items));
}

}  // namespace heterog::cost
