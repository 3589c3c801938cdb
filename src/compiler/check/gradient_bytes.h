// What gradients weigh on their way: whole, compressed, or as the rows of look-ups.
#pragma once

#include "cost/problem.h"
#include "decide/layout.h"

namespace heterog::compiler {

class GradientBytes {
 public:
  GradientBytes(const cost::Problem& problem, const decide::Layout& layout)
      : problem_(problem), graph_(*problem.graph), layout_(layout) {}

  Bytes whole(TensorId tensor) const { return graph_.bytes(tensor, problem_.batch); }
  // Two bytes an element, where fp16 or bf16 is allowed.
  Bytes as_cast(TensorId tensor) const;
  // What the slices of a device add to what `producer` makes, as indices and rows if it is a
  // lookup's.
  Bytes as_rows(OpId producer, TensorId gradient, DeviceId device) const;

  // Of one all-reduce, and of the one after it.
  struct Sums {
    Bytes full = 0, first = 0, second = 0;
  };
  void add_to(Sums& sums, TensorId tensor) const;

 private:
  bool is_wide(TensorId tensor) const;
  // Columns of PowerSGD's factors; 0: none. A matrix of n rows has n of each in the first factor.
  std::int64_t columns(TensorId tensor) const;
  Bytes as_rows(TensorId gradient, std::int64_t samples) const;

  const cost::Problem& problem_;
  const graph::ModelGraph& graph_;
  const decide::Layout& layout_;
};

}  // namespace heterog::compiler
