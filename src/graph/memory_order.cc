// Compares strides with those that the order would give.
#include "graph/memory_order.h"

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace heterog::graph {
namespace {

bool is_channels_last(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  std::int64_t expected = 1;
  const auto lies_there = [&](std::size_t dim) {
    const bool there = sizes[dim] == 1 || strides[dim] == expected;
    expected *= sizes[dim];
    return there;
  };
  if (!lies_there(1)) return false;
  for (std::size_t dim = sizes.size() - 1; dim > 1; --dim) {
    if (!lies_there(dim)) return false;
  }
  return lies_there(0);
}

}  // namespace

bool is_channels_last(std::span<const Affine> shape, std::span<const Affine> strides) {
  EXPECT(shape.size() == strides.size());
  if (shape.size() != 4 && shape.size() != 5) return false;
  // Sizes follow the batch in a line, strides in products of such: two batches tell.
  for (const std::int64_t batch : {7, 11}) {
    std::vector<std::int64_t> sizes, steps;
    for (const Affine& dim : shape) sizes.push_back(dim.at(batch));
    for (const Affine& step : strides) steps.push_back(step.at(batch));
    if (!is_channels_last(std::span<const std::int64_t>(sizes), steps)) return false;
  }
  return true;
}

}  // namespace heterog::graph
