// Cuts samples out of tensors and puts slices of the batch side by side, as split rules say.
#pragma once

#include <ATen/ATen.h>

#include <span>

#include "runtime/program/program.h"

namespace heterog::runtime {

// The samples [cut.begin, cut.begin + cut.count): a view, or a copy where that would have gaps in
// memory that `value` does not have.
at::Tensor cut_samples(const at::Tensor& value, const Cut& cut);
// The slices along `dim`, which is outer × rest, side by side along the rest.
at::Tensor join_samples(std::span<const at::Tensor> slices, std::uint8_t dim, std::int64_t outer);

}  // namespace heterog::runtime
