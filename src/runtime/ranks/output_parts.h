// Puts an output of a step together from what the ranks have of it: slices of the batch, addends of
// a sum or mean, or the whole.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program/program.h"

namespace heterog::runtime {

// Every process knows from the job which parts each rank has. So a rank sends them one behind the
// other in a row of numbers, all rows as long as the longest, and everybody can read all rows.
class OutputParts {
 public:
  OutputParts(const Job& job, TensorId tensor);

  // For so many ranks.
  at::Tensor row(std::size_t ranks) const;
  // `captures`: of a step, parallel to those of the rank's program.
  void put(DeviceId rank, std::span<const at::Tensor> captures, const at::Tensor& row) const;
  // `rows`: of all ranks, in their order.
  at::Tensor whole(const at::Tensor& rows) const;

 private:
  std::vector<std::int64_t> sizes(const Capture& capture) const;
  // Calls f(index, capture, first place, places) with each of a rank's parts.
  template <class F>
  void for_each(DeviceId rank, const F& f) const;

  const Job& job_;
  TensorId tensor_;
  at::ScalarType dtype_;
  std::int64_t width_ = 0;
};

}  // namespace heterog::runtime
