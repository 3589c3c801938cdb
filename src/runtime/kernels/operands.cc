// Makes operands: by type, by what the operator does with them, through the views before it.
#include "runtime/kernels/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "operators/facts.h"
#include "runtime/kernels/host_memory.h"

namespace heterog::runtime {
namespace {

using graph::DType;
using graph::Value;

// Which argument an operand is, and which item of it if that is a list.
struct Place {
  std::size_t argument = 0;
  std::size_t item = 0;
};

Place place_of(const graph::ModelGraph& graph, OpId op, std::size_t index) {
  std::size_t next = 0;
  const auto args = graph.args(op);
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].kind == Value::Kind::kTensor && next++ == index) return {i, 0};
    for (std::size_t j = 0; j < args[i].items.size(); ++j) {
      if (args[i].items[j].kind == Value::Kind::kTensor && next++ == index) return {i, j};
    }
  }
  return {args.size(), 0};
}

// Integers of this operand are below the result; labels may be the ignored one.
struct IntegerRange {
  std::int64_t end = 3;
  std::optional<std::int64_t> ignored = {};
};

IntegerRange integer_range(const graph::ModelGraph& graph, OpId op, Place place,
                           std::int64_t samples) {
  const auto inputs = graph.inputs(op);
  const auto args = graph.args(op);
  // A file may say anything: what is not there is for the operator to refuse.
  const auto size = [&](std::size_t operand, std::int64_t dim) -> std::int64_t {
    if (operand >= inputs.size()) return 1;
    const auto shape = graph.shape(inputs[operand]);
    const std::int64_t at = dim < 0 ? dim + static_cast<std::int64_t>(shape.size()) : dim;
    if (at < 0 || at >= static_cast<std::int64_t>(shape.size())) return 1;
    return shape[static_cast<std::size_t>(at)].at(samples);
  };
  const auto number = [&](std::size_t argument) -> std::int64_t {
    return argument < args.size() ? args[argument].integer.c : 1;
  };
  const operators::Indices& indices = graph.facts(op).indices;
  if (place.argument != indices.argument) return {};
  using Of = operators::Indices::Of;
  switch (indices.of) {
    case Of::kNone:
      break;
    case Of::kRows:
      return {size(indices.in, 0)};
    case Of::kClasses:
      return {size(indices.in, 1), number(indices.in + 4)};
    case Of::kDimension:
      return {size(indices.in, number(1))};
    case Of::kItem:
      return {size(indices.in, static_cast<std::int64_t>(place.item))};
    case Of::kNumber:
      return {number(indices.in)};
  }
  return {};
}

// The alias ops that lead from the tensor that owns the memory to `id`, in order.
std::vector<OpId> views_before(const graph::ModelGraph& graph, TensorId id) {
  std::vector<OpId> chain;
  for (OpId op = graph.tensor(id).producer; op.valid() && graph.op(op).alias;) {
    chain.push_back(op);
    op = graph.tensor(graph.inputs(op)[0]).producer;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

at::Tensor through_views(const graph::ModelGraph& graph, OpId op, std::size_t index,
                         std::int64_t samples, at::Device device) {
  const TensorId wanted = graph.inputs(op)[index];
  const std::vector<OpId> chain = views_before(graph, wanted);
  TensorId at = chain.empty() ? wanted : graph.inputs(chain[0])[0];
  at::Tensor value =
      random_operand(
          graph, op,
          {.index = index, .samples = samples, .sizes = sizes_at(graph.shape(at), samples)})
          .to(device);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    at = i + 1 < chain.size() ? graph.inputs(chain[i + 1])[0] : wanted;
    const auto outputs = graph.outputs(chain[i]);
    const auto place = std::find(outputs.begin(), outputs.end(), at) - outputs.begin();
    value = execute(graph, chain[i], std::span(&value, 1), {.slice = samples, .whole = samples},
                    {.device = device})[static_cast<std::size_t>(place)];
  }
  return value;
}

}  // namespace

at::Tensor random_operand(const graph::ModelGraph& graph, OpId op, const OperandSpec& spec) {
  const DType dtype = graph.tensor(graph.inputs(op)[spec.index]).dtype;
  const at::ScalarType type = scalar_type(dtype, spec.floats);
  if (dtype == DType::kBool) return at::rand(spec.sizes) < 0.5;
  if (at::isFloatingType(type)) {
    // Half-precision values are drawn in single precision.
    const at::ScalarType drawn = type == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor value = graph.facts(op).positive ? at::rand(spec.sizes, drawn) * 0.8 + 0.1
                                                      : at::randn(spec.sizes, drawn);
    return value.to(type);
  }
  const IntegerRange range =
      integer_range(graph, op, place_of(graph, op, spec.index), spec.samples);
  at::Tensor result = at::randint(range.end, spec.sizes, type);
  if (range.ignored) {
    const at::Tensor left_out = at::rand(spec.sizes) < 0.3;
    result = at::where(left_out, at::full_like(result, *range.ignored), result);
  }
  return result;
}

std::optional<at::Tensor> pooling_indices(const graph::ModelGraph& graph, OpId op,
                                          const at::Tensor& x) {
  const operators::Facts& facts = graph.facts(op);
  if (!facts.pooled_places) return std::nullopt;
  const auto args = graph.args(op);
  const auto ints = [&](std::size_t place) {
    std::vector<std::int64_t> list;
    if (place < args.size()) {
      for (const Value& item : args[place].items) list.push_back(item.integer.c);
    }
    return list;
  };
  if (facts.adaptive) {
    const auto grad = graph.shape(graph.inputs(op)[0]);
    if (grad.size() != 4) return std::nullopt;
    return std::get<1>(at::adaptive_max_pool2d(x, {grad[2].c, grad[3].c}));
  }
  const bool ceil = args.size() > 6 && args[6].integer.c != 0;
  return std::get<1>(at::max_pool2d_with_indices(x, ints(2), ints(3), ints(4), ints(5), ceil));
}

std::vector<at::Tensor> random_operands(const graph::ModelGraph& graph, OpId op,
                                        std::int64_t samples, at::Device device) {
  const auto inputs = graph.inputs(op);
  if (device.is_cpu()) {
    Bytes bytes = 0;
    for (TensorId input : inputs) bytes += graph.bytes(input, samples);
    check_host_has(bytes, fmt::format("op '{}' ({}): what it reads at {} samples",
                                      printable(graph.op(op).name), graph.type_name(op), samples));
  }
  std::vector<at::Tensor> values;
  std::map<TensorId, std::size_t> known;  // an op that reads a tensor twice reads the same value
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto [place, added] = known.try_emplace(inputs[i], i);
    if (!added) {
      values.push_back(values[place->second]);
      continue;
    }
    values.push_back(through_views(graph, op, i, samples, device));
    if (i < 2 || graph.tensor(inputs[i]).dtype != DType::kInt64) continue;
    if (const auto indices = pooling_indices(graph, op, values[1])) values[i] = *indices;
  }
  return values;
}

}  // namespace heterog::runtime
