// Cuts whole tensors into the slices of a batch and puts slices together, as split rules say.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "graph/split.h"

namespace heterog::split_proof {

// Samples of each slice; slices are contiguous.
using SliceSizes = std::vector<std::int64_t>;
std::int64_t whole_batch(const SliceSizes& sizes);

// Slice `index` of a whole tensor under a kConcat rule.
at::Tensor cut(const at::Tensor& whole, const graph::SplitRule& rule, const SliceSizes& sizes,
               std::size_t index);

// The whole value of slices: side by side, summed, averaged by share, or the first.
at::Tensor merge(std::span<const at::Tensor> slices, const graph::SplitRule& rule,
                 const SliceSizes& sizes);

// ‖a − b‖ ≤ tolerance · max(‖b‖, scale), types and sizes alike; integers and booleans equal. NaN
// agrees with NaN.
bool agree(const at::Tensor& a, const at::Tensor& b, double tolerance, double scale = 0);

}  // namespace heterog::split_proof
