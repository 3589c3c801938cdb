// Random numbers that depend on where they are used alone: the same under every plan.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "runtime/gpu/kernel_arguments.h"
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

// What a kernel needs to know of it.
KeepRule keep_rule(const RandomStream& stream, double rate, const std::vector<std::int64_t>& sizes,
                   const Cut& cut);

// The same by tensor operations alone: for devices that no kernel is compiled for.
at::Tensor keep_mask_by_tensors(const RandomStream& stream, double rate,
                                const std::vector<std::int64_t>& sizes, const Cut& cut,
                                at::Device device);

// A distribution of real numbers, and its parameters.
struct Law {
  enum class Kind : std::uint8_t {
    kUniform,      // in [a, b); of `digits` random binary digits
    kNormal,       // of mean a and standard deviation b
    kExponential,  // of rate a
    kLogNormal,    // e to the power of a normal number
    kGeometric,    // trials until the first success, whose probability is a
    kCauchy,       // of median a and scale b
  };
  Kind kind = Kind::kUniform;
  double a = 0;
  double b = 1;
  int digits = 53;
};

// The numbers that the elements of a slice draw, as those of keep_mask do: float64, by
// runtime/kernels/variates.h.
at::Tensor random_numbers(const RandomStream& stream, const Law& law,
                          const std::vector<std::int64_t>& sizes, const Cut& cut,
                          at::Device device);
at::Tensor random_numbers_by_tensors(const RandomStream& stream, const Law& law,
                                     const std::vector<std::int64_t>& sizes, const Cut& cut,
                                     at::Device device);

// The same for whole numbers in [low, low + count), count up to 2^63: int64.
struct Range {
  std::int64_t low = 0;
  std::uint64_t count = 1;
};
at::Tensor random_integers(const RandomStream& stream, const Range& range,
                           const std::vector<std::int64_t>& sizes, const Cut& cut,
                           at::Device device);
at::Tensor random_integers_by_tensors(const RandomStream& stream, const Range& range,
                                      const std::vector<std::int64_t>& sizes, const Cut& cut,
                                      at::Device device);

// The numbers below `count` in a random order, all of them: int64.
at::Tensor random_order(const RandomStream& stream, std::int64_t count, at::Device device);

}  // namespace heterog::runtime
