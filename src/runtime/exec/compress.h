// Gradients in compressed form, around a transport's calls (decision 22): casts to two bytes, and
// PowerSGD's factors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// What a rank keeps of its gradients from step to step, in no checkpoint: training that goes on
// begins with nothing lost. All jobs of a worker share it, and its queues use it side by side.
class CompressionState {
 public:
  // `seed`: the same on every rank.
  explicit CompressionState(std::uint64_t seed) : seed_(seed) {}

  struct Kept {
    at::Tensor lost;    // what compression took from this rank's gradient; undefined: nothing yet
    at::Tensor factor;  // PowerSGD: columns × rank, where the next step begins
  };
  // Stays where it is. Only one task of a step compresses a value.
  Kept& of(const CompressedValue& value);
  std::uint64_t seed() const { return seed_; }
  // Between steps.
  Bytes bytes() const;

 private:
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  std::map<std::pair<TensorId, std::int64_t>, Kept> kept_;  // by tensor and first row
};

at::ScalarType cast_type(cost::Compressor compressor);  // of kHalf and kBfloat16
// The value, with what was lost before if there is feedback, in the type of its compressor: new
// memory. What is not finite is lost without trace.
at::Tensor cast(const CompressedValue& value, const at::Tensor& gradient, CompressionState& state);

// PowerSGD of one gradient in one step (Vogels et al. 2019, algorithm 1, with feedback):
//
//   LowRank of(value, gradient, state);
//   at::Tensor p = sum over ranks of of.first()       n × r: (gradient + lost) · factor
//   at::Tensor q = sum over ranks of of.second(p)     m × r: (gradient + lost)' · orthogonal p
//   of.sum(q)                                         n × m: orthogonal p · q'
//
// What a rank loses is its own gradient less its own part of the sum, so that what all lost adds up
// to what the sum lacks.
class LowRank {
 public:
  LowRank(const CompressedValue& value, const at::Tensor& gradient, CompressionState& state);
  at::Tensor first() const;
  at::Tensor second(const at::Tensor& sum_of_first);
  // In the gradient's shape.
  at::Tensor sum(const at::Tensor& sum_of_second);

 private:
  std::vector<std::int64_t> sizes_;
  CompressionState::Kept& kept_;
  at::Tensor p_;  // orthogonal
};

// Columns of length 1, each orthogonal to those before it (Gram-Schmidt, twice). What depends on
// those before it to rounding becomes zero, not noise: ranks on unlike devices make unlike noise.
at::Tensor orthogonal(const at::Tensor& columns);

// The values of a collective and what is added up in their place.
class CompressedSums {
 public:
  // `given`: parallel to the instruction's values, which outlives this.
  CompressedSums(const Instruction& instruction, const std::vector<at::Tensor>& given,
                 CompressionState& state);
  // What is added up first, parallel to the values: values as they are, casts, first factors.
  const std::vector<at::Tensor>& first() const { return first_; }
  // What is added up then; of second factors alone, in the order of their values.
  std::vector<at::Tensor> second(const std::vector<at::Tensor>& sums);
  // The sums in the shapes and types of the values.
  std::vector<at::Tensor> whole(const std::vector<at::Tensor>& sums,
                                const std::vector<at::Tensor>& second_sums);

 private:
  std::vector<at::ScalarType> types_;
  std::vector<std::optional<LowRank>> factored_;
  std::vector<at::Tensor> first_;
};

}  // namespace heterog::runtime
