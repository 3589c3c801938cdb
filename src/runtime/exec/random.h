// Random numbers that depend on where they are used alone: the same under every plan.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "runtime/program/program.h"

namespace heterog::runtime {

// Which random numbers: those of an op in a step of a training.
struct RandomStream {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  OpId op;
};

// For every element of a slice, whether a number in [0, 1) that its index in the whole batch
// draws from the stream is at least `rate`. `sizes`: of the slice. `cut`: where it lies in the
// whole, which holds cut.held samples; cut.held == cut.count: it is the whole. Elements of the
// whole are numbered row by row. Bits do not depend on the device or the number of threads.
at::Tensor keep_mask(const RandomStream& stream, double rate,
                     const std::vector<std::int64_t>& sizes, const Cut& cut, at::Device device);

// The same by tensor operations alone, for devices other than the CPU.
at::Tensor keep_mask_by_tensors(const RandomStream& stream, double rate,
                                const std::vector<std::int64_t>& sizes, const Cut& cut,
                                at::Device device);

}  // namespace heterog::runtime
