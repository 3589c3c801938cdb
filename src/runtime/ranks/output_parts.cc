// By the order of a program's captures.
#include "runtime/ranks/output_parts.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/exec/slices.h"
#include "runtime/kernels/execute.h"

namespace heterog::runtime {

OutputParts::OutputParts(const Job& job, TensorId tensor)
    : job_(job),
      tensor_(tensor),
      dtype_(scalar_type(job.problem->graph->tensor(tensor).dtype, Floats::kOwn)) {
  for (const Program& program : job.programs) {
    std::int64_t width = 0;
    for_each(program.device, [&](std::size_t /*index*/, const Capture& /*part*/, std::int64_t at,
                                 std::int64_t places) { width = at + places; });
    width_ = std::max(width_, width);
  }
}

std::vector<std::int64_t> OutputParts::sizes(const Capture& capture) const {
  return sizes_at(job_.problem->graph->shape(tensor_), capture.end - capture.begin);
}

template <class F>
void OutputParts::for_each(DeviceId rank, const F& f) const {
  const std::vector<Capture>& captures = job_.programs[rank].captures;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < captures.size(); ++i) {
    if (captures[i].tensor != tensor_) continue;
    std::int64_t places = 1;
    for (std::int64_t size : sizes(captures[i])) places *= size;
    f(i, captures[i], at, places);
    at += places;
  }
}

at::Tensor OutputParts::row(std::size_t ranks) const {
  return at::zeros({static_cast<std::int64_t>(ranks), width_}, dtype_);
}

void OutputParts::put(DeviceId rank, std::span<const at::Tensor> captures,
                      const at::Tensor& row) const {
  for_each(rank,
           [&](std::size_t index, const Capture& /*part*/, std::int64_t at, std::int64_t places) {
             const at::Tensor& value = captures[index];
             ENSURE(value.numel() == places);
             row.narrow(0, at, places).copy_(value.reshape({-1}));
           });
}

at::Tensor OutputParts::whole(const at::Tensor& rows) const {
  std::map<std::int64_t, std::pair<std::int64_t, at::Tensor>> slices;  // by their first sample
  at::Tensor sum;
  for (const Program& program : job_.programs) {
    const at::Tensor row = rows[static_cast<std::int64_t>(program.device.value())];
    for_each(program.device,
             [&](std::size_t /*index*/, const Capture& part, std::int64_t at, std::int64_t places) {
               at::Tensor value = row.narrow(0, at, places).reshape(sizes(part));
               if (!part.partial) {
                 if (part.begin < part.end) slices.try_emplace(part.begin, part.end, value);
                 return;
               }
               if (part.weight != 1) value = value.to(at::kDouble) * part.weight;
               sum = sum.defined() ? sum + value : value;
             });
  }
  if (sum.defined()) return sum.to(dtype_);
  std::vector<at::Tensor> values;
  std::int64_t reached = 0;
  for (const auto& [begin, slice] : slices) {
    ENSURE(begin == reached);
    reached = slice.first;
    values.push_back(slice.second);
  }
  ENSURE(reached == job_.problem->batch);
  if (values.size() == 1) return values.front();
  const graph::SplitRule rule =
      graph::seen_rule(*job_.problem->graph, *job_.problem->splits, tensor_);
  return join_samples(values, rule.dim, rule.outer);
}

}  // namespace heterog::runtime
