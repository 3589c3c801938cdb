// Sizes of gradients by their type, their compression and the look-ups that make them.
#include "compiler/check/gradient_bytes.h"

#include <algorithm>
#include <vector>

#include "operators/facts.h"

namespace heterog::compiler {

bool GradientBytes::is_wide(TensorId tensor) const {
  const graph::DType dtype = graph_.tensor(tensor).dtype;
  return !graph_.shape(tensor).empty() &&
         (dtype == graph::DType::kFloat32 || dtype == graph::DType::kFloat64);
}

Bytes GradientBytes::as_cast(TensorId tensor) const {
  const auto compressor = problem_.compression.compressor;
  const bool casts =
      compressor == cost::Compressor::kHalf || compressor == cost::Compressor::kBfloat16;
  if (!casts || !is_wide(tensor)) return whole(tensor);
  return 2 * (whole(tensor) / graph::element_bytes(graph_.tensor(tensor).dtype));
}

std::int64_t GradientBytes::columns(TensorId tensor) const {
  if (problem_.compression.compressor != cost::Compressor::kPowerSgd) return 0;
  if (!is_wide(tensor) || graph_.shape(tensor).size() < 2) return 0;
  const std::int64_t rows = graph_.shape(tensor)[0].c, rank = problem_.compression.rank;
  const std::int64_t elements = graph_.elements(tensor, 1);
  return rank * rows + rank * (elements / rows) < elements ? rank : 0;
}

void GradientBytes::add_to(Sums& sums, TensorId tensor) const {
  sums.full += whole(tensor);
  const std::int64_t taken = columns(tensor);
  if (taken == 0) {
    sums.first += as_cast(tensor);
    return;
  }
  const std::int64_t rows = graph_.shape(tensor)[0].c;
  const Bytes element = graph::element_bytes(graph_.tensor(tensor).dtype);
  sums.first += taken * rows * element;
  sums.second += taken * (graph_.elements(tensor, 1) / rows) * element;
}

Bytes GradientBytes::as_rows(OpId producer, TensorId gradient, DeviceId device) const {
  Bytes total = 0;
  for (const decide::Slice& slice : layout_.op_slices(producer)) {
    if (slice.device == device) total += as_rows(gradient, slice.size());
  }
  return std::min(whole(gradient), total);
}

Bytes GradientBytes::as_rows(TensorId gradient, std::int64_t samples) const {
  Bytes total = 0;
  std::vector<TensorId> addends = {gradient};
  while (!addends.empty()) {
    const OpId maker = graph_.tensor(addends.back()).producer;
    addends.pop_back();
    if (!maker.valid()) return whole(gradient);
    const operators::Facts& facts = graph_.facts(maker);
    if (facts.sum) {
      for (TensorId input : graph_.inputs(maker)) addends.push_back(input);
    } else if (facts.sparse_gradient) {
      const Bytes row = whole(gradient) / graph_.shape(gradient)[0].c;
      const TensorId indices = graph_.inputs(maker)[facts.sparse_gradient->indices];
      const Bytes index = graph_.bytes(indices, 1) / graph_.elements(indices, 1);
      total += graph_.elements(indices, samples) * (row + index);
    } else {
      return whole(gradient);
    }
  }
  return std::min(whole(gradient), total);
}

}  // namespace heterog::compiler
