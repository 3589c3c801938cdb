// Casts and factors, and what they lose.
#include "runtime/exec/compress.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "base/rng.h"

namespace heterog::runtime {
namespace {

// Normal, the same on every rank (Box and Muller).
at::Tensor first_factor(std::int64_t rows, std::int64_t columns, Rng rng) {
  at::Tensor factor = at::empty({rows, columns}, at::kDouble);
  double* numbers = factor.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < factor.numel(); ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
    numbers[i] = radius * std::cos(2 * std::numbers::pi * rng.uniform());
  }
  return factor;
}

// An overflow (of AMP's scaled losses) is no loss to be made good.
void drop_what_is_not_finite(at::Tensor& lost) { lost.nan_to_num_(0.0, 0.0, 0.0); }

}  // namespace

CompressionState::Kept& CompressionState::of(const CompressedValue& value) {
  const std::lock_guard lock(mutex_);
  return kept_[{value.tensor, value.first_row}];
}

Bytes CompressionState::bytes() const {
  const std::lock_guard lock(mutex_);
  Bytes bytes = 0;
  for (const auto& [key, kept] : kept_) {
    for (const at::Tensor* one : {&kept.lost, &kept.factor}) {
      if (one->defined()) bytes += static_cast<Bytes>(one->nbytes());
    }
  }
  return bytes;
}

at::ScalarType cast_type(cost::Compressor compressor) {
  ENSURE(compressor == cost::Compressor::kHalf || compressor == cost::Compressor::kBfloat16);
  return compressor == cost::Compressor::kHalf ? at::kHalf : at::kBFloat16;
}

at::Tensor cast(const CompressedValue& value, const at::Tensor& gradient, CompressionState& state) {
  const at::ScalarType type = cast_type(value.compression.compressor);
  if (!value.compression.feedback) return gradient.to(type).contiguous();
  at::Tensor& lost = state.of(value).lost;
  if (lost.defined()) {
    lost.add_(gradient);
  } else {
    lost = gradient.clone(at::MemoryFormat::Contiguous);
  }
  at::Tensor made = lost.to(type);
  lost.sub_(made);
  drop_what_is_not_finite(lost);
  return made;
}

LowRank::LowRank(const CompressedValue& value, const at::Tensor& gradient, CompressionState& state)
    : sizes_(gradient.sizes().vec()), kept_(state.of(value)) {
  const std::int64_t rows = gradient.size(0), columns = gradient.numel() / rows;
  const at::Tensor matrix = gradient.reshape({rows, columns});
  if (kept_.lost.defined()) {
    kept_.lost.add_(matrix);
  } else {
    kept_.lost = matrix.clone(at::MemoryFormat::Contiguous);
  }
  if (kept_.factor.defined()) return;
  const Rng rng = Rng(state.seed()).split(value.tensor.value());
  kept_.factor = first_factor(columns, value.compression.rank, rng).to(gradient.options());
}

at::Tensor LowRank::first() const { return at::mm(kept_.lost, kept_.factor); }

at::Tensor LowRank::second(const at::Tensor& sum_of_first) {
  p_ = orthogonal(sum_of_first);
  at::Tensor own = at::mm(kept_.lost.t(), p_);
  kept_.lost.addmm_(p_, own.t(), 1, -1);
  drop_what_is_not_finite(kept_.lost);
  return own;
}

// A column of zeros, or one that is not finite, would stay what it is for ever: there the next step
// begins where this one did.
at::Tensor LowRank::sum(const at::Tensor& sum_of_second) {
  const at::Tensor length = sum_of_second.square().sum(0, true);
  const at::Tensor usable = length.gt(0).logical_and(length.isfinite());
  kept_.factor = at::where(usable, sum_of_second, kept_.factor);
  return at::mm(p_, sum_of_second.t()).view(sizes_);
}

at::Tensor orthogonal(const at::Tensor& columns) {
  const bool is_double = columns.scalar_type() == at::kDouble;
  const double least = std::sqrt(is_double ? std::numeric_limits<double>::epsilon()
                                           : double{std::numeric_limits<float>::epsilon()});
  const at::Tensor rows = columns.t().clone(at::MemoryFormat::Contiguous);  // a column each
  for (std::int64_t k = 0; k < rows.size(0); ++k) {
    at::Tensor column = rows.select(0, k);
    const at::Tensor before = column.norm();
    for (int pass = 0; k > 0 && pass < 2; ++pass) {
      const at::Tensor earlier = rows.narrow(0, 0, k);
      column.sub_(at::mv(earlier.t(), at::mv(earlier, column)));
    }
    const at::Tensor after = column.norm();
    // What is not finite stays so: zero times it is not a number.
    column.mul_(at::where(after.gt(before * least), after.reciprocal(), at::zeros_like(after)));
  }
  return rows.t().contiguous();
}

CompressedSums::CompressedSums(const Instruction& instruction, const std::vector<at::Tensor>& given,
                               CompressionState& state)
    : factored_(given.size()) {
  ENSURE(instruction.compressed.size() == given.size());
  for (std::size_t v = 0; v < given.size(); ++v) {
    const CompressedValue& value = instruction.compressed[v];
    types_.push_back(given[v].scalar_type());
    if (value.compression.is_cast()) {
      first_.push_back(cast(value, given[v], state));
    } else if (value.compression.any()) {
      factored_[v].emplace(value, given[v], state);
      first_.push_back(factored_[v]->first());
    } else {
      first_.push_back(given[v]);
    }
  }
}

std::vector<at::Tensor> CompressedSums::second(const std::vector<at::Tensor>& sums) {
  std::vector<at::Tensor> factors;
  for (std::size_t v = 0; v < sums.size(); ++v) {
    if (factored_[v]) factors.push_back(factored_[v]->second(sums[v]));
  }
  return factors;
}

std::vector<at::Tensor> CompressedSums::whole(const std::vector<at::Tensor>& sums,
                                              const std::vector<at::Tensor>& second_sums) {
  std::vector<at::Tensor> all;
  auto factor = second_sums.begin();
  for (std::size_t v = 0; v < sums.size(); ++v) {
    all.push_back(factored_[v] ? factored_[v]->sum(*factor++) : sums[v].to(types_[v]));
  }
  return all;
}

}  // namespace heterog::runtime
