// Cuts whole tensors into the slices of a batch and puts slices together, as split rules say.
#include "split_proof/slices.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace heterog::split_proof {

using graph::SplitKind;

std::int64_t whole_batch(const SliceSizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

at::Tensor cut(const at::Tensor& whole, const graph::SplitRule& rule, const SliceSizes& sizes,
               std::size_t index) {
  const std::int64_t batch = whole_batch(sizes);
  const std::int64_t rows = whole.size(rule.dim) / rule.outer / batch;  // a sample's
  ENSURE(rows * rule.outer * batch == whole.size(rule.dim));
  const std::int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + index, std::int64_t{0});
  return whole.unflatten(rule.dim, {rule.outer, rows * batch})
      .narrow(rule.dim + 1, rows * begin, rows * sizes[index])
      .flatten(rule.dim, rule.dim + 1)
      .contiguous();
}

at::Tensor merge(std::span<const at::Tensor> slices, const graph::SplitRule& rule,
                 const SliceSizes& sizes) {
  switch (rule.kind) {
    case SplitKind::kConcat: {
      std::vector<at::Tensor> parts;
      for (const at::Tensor& slice : slices) {
        parts.push_back(slice.unflatten(rule.dim, {rule.outer, slice.size(rule.dim) / rule.outer}));
      }
      return at::cat(parts, rule.dim + 1).flatten(rule.dim, rule.dim + 1);
    }
    case SplitKind::kSum: {
      at::Tensor sum = slices[0].clone();
      for (const at::Tensor& slice : slices.subspan(1)) sum = sum + slice;
      return sum;
    }
    case SplitKind::kMean: {
      at::Tensor mean = at::zeros_like(slices[0]);
      for (std::size_t i = 0; i < slices.size(); ++i) {
        mean = mean + slices[i] * (static_cast<double>(sizes[i]) / whole_batch(sizes));
      }
      return mean;
    }
    default:
      return slices[0];
  }
}

bool agree(const at::Tensor& a, const at::Tensor& b, double tolerance, double scale) {
  if (a.sizes() != b.sizes()) return false;
  if (!b.is_floating_point() || !a.is_floating_point()) {
    return a.scalar_type() == b.scalar_type() && a.equal(b);
  }
  if (!a.isnan().equal(b.isnan())) return false;
  // Infinities agree where they are the same.
  const at::Tensor difference = at::where(a == b, at::zeros_like(b), a - b).nan_to_num(0.0);
  const at::Tensor finite = b.nan_to_num(0.0, 0.0, 0.0);
  const double norm = std::max(finite.norm().item<double>(), scale);
  return difference.norm().item<double>() <= tolerance * norm;
}

}  // namespace heterog::split_proof
