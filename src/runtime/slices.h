// Cuts samples out of tensors and puts slices of the batch side by side, as split rules say.
#pragma once

#include <ATen/ATen.h>

#include <span>

#include "runtime/program.h"

namespace heterog::runtime {

// A view of the samples [cut.begin, cut.begin + cut.count); a copy only if cut.outer > 1.
at::Tensor cut_samples(const at::Tensor& value, const Cut& cut);
// The slices along `dim`, which is outer × rest, side by side along the rest.
at::Tensor join_samples(std::span<const at::Tensor> slices, std::uint8_t dim, std::int64_t outer);

}  // namespace heterog::runtime
