// Cuts and joins along one dimension.
#include "runtime/exec/slices.h"

#include <vector>

#include "base/check.h"

namespace heterog::runtime {

at::Tensor cut_samples(const at::Tensor& value, const Cut& cut) {
  const std::int64_t rows = value.size(cut.dim) / cut.outer / cut.held;  // a sample's
  ENSURE(rows * cut.outer * cut.held == value.size(cut.dim));
  if (cut.outer == 1) {
    const at::Tensor part = value.narrow(cut.dim, rows * cut.begin, rows * cut.count);
    // Kernels take it that what an operator has left lies in memory without gaps (the statistics of
    // a layer normalisation), as it does where nobody cuts.
    const bool has_gaps =
        value.is_non_overlapping_and_dense() && !part.is_non_overlapping_and_dense();
    return has_gaps ? part.clone(at::MemoryFormat::Preserve) : part;
  }
  return value.unflatten(cut.dim, {cut.outer, rows * cut.held})
      .narrow(cut.dim + 1, rows * cut.begin, rows * cut.count)
      .flatten(cut.dim, cut.dim + 1);
}

at::Tensor join_samples(std::span<const at::Tensor> slices, std::uint8_t dim, std::int64_t outer) {
  if (outer == 1) return at::cat(at::TensorList(slices.data(), slices.size()), dim);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& slice : slices) {
    parts.push_back(slice.unflatten(dim, {outer, slice.size(dim) / outer}));
  }
  return at::cat(parts, dim + 1).flatten(dim, dim + 1);
}

}  // namespace heterog::runtime
