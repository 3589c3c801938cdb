// Random operands for one op of a graph, whole and as its slices would read them.
#include "split_proof/operands.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "split_proof/execute.h"

namespace heterog::split_proof {
namespace {

using graph::Affine;
using graph::DType;
using graph::OperandUse;
using graph::SplitKind;
using graph::SplitRule;
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

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool wants_positive(std::string_view type) {
  for (std::string_view part : {"log.", "log1p", "sqrt", "pow.", "addcdiv", "batch_norm",
                                "binary_cross_entropy.", "binary_cross_entropy_backward"}) {
    if (contains(type, part)) return true;
  }
  return false;
}

// Integers of this operand are below the result; labels may be the ignored one.
struct IntegerRange {
  std::int64_t end = 3;
  std::optional<std::int64_t> ignored = {};
};

IntegerRange integer_range(const graph::ModelGraph& graph, OpId op, Place place,
                           std::int64_t samples) {
  const std::string_view type = graph.type_name(op);
  const auto inputs = graph.inputs(op);
  const auto args = graph.args(op);
  const auto size = [&](std::size_t operand, std::int64_t dim) {
    const auto shape = graph.shape(inputs[operand]);
    if (dim < 0) dim += static_cast<std::int64_t>(shape.size());
    return shape[static_cast<std::size_t>(dim)].at(samples);
  };
  if (type == "aten.embedding.default" && place.argument == 1) return {size(0, 0)};
  if (type == "aten.embedding_dense_backward.default" && place.argument == 1) {
    return {args[2].integer.c};
  }
  if ((contains(type, "aten.gather.") || contains(type, "aten.scatter") ||
       contains(type, "aten.index_select.") || contains(type, "aten.index_add.")) &&
      place.argument == 2) {
    return {size(0, args[1].integer.c)};
  }
  if ((type == "aten.index.Tensor" || type == "aten.index_put.default") && place.argument == 1) {
    return {size(0, static_cast<std::int64_t>(place.item))};
  }
  if (contains(type, "nll_loss")) {
    const std::size_t x = contains(type, "backward") ? 1 : 0;
    if (place.argument == x + 1) return {size(x, 1), args[x + 4].integer.c};
  }
  return {};
}

at::Tensor random_tensor(const graph::ModelGraph& graph, OpId op, std::size_t index,
                         std::int64_t samples, std::vector<std::int64_t> sizes) {
  const DType dtype = graph.tensor(graph.inputs(op)[index]).dtype;
  const at::ScalarType type = executed_dtype(dtype);
  if (dtype == DType::kBool) return at::rand(sizes) < 0.5;
  if (at::isFloatingType(type)) {
    if (wants_positive(graph.type_name(op))) return at::rand(sizes, type) * 0.8 + 0.1;
    return at::randn(sizes, type);
  }
  const IntegerRange range = integer_range(graph, op, place_of(graph, op, index), samples);
  at::Tensor result = at::randint(range.end, sizes, type);
  if (range.ignored) {
    result = at::where(at::rand(sizes) < 0.3, at::full_like(result, *range.ignored), result);
  }
  return result;
}

// Row numbers 0 … n−1 along the dimension that depends on the batch.
at::Tensor row_numbers(std::span<const Affine> shape, std::int64_t samples) {
  std::vector<std::int64_t> sizes(shape.size(), 1);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!shape[i].constant()) sizes[i] = shape[i].at(samples);
  }
  const std::vector<std::int64_t> full = sizes_at(shape, samples);
  std::int64_t rows = 1;
  for (std::int64_t size : sizes) rows *= size;
  return at::arange(rows, at::kLong).reshape(sizes).expand(full).contiguous();
}

OperandValues values_of(const graph::ModelGraph& graph, OpId op, std::size_t index, OperandUse use,
                        const SplitRule& rule, const SliceSizes& sizes, Content content) {
  const std::int64_t batch = whole_batch(sizes);
  const auto shape = graph.shape(graph.inputs(op)[index]);
  OperandValues values;
  const auto random = [&](std::int64_t samples) {
    return random_tensor(graph, op, index, batch, sizes_at(shape, samples));
  };
  switch (use) {
    case OperandUse::kSlice:
      if (content == Content::kRepeated) {
        values.slices.assign(sizes.size(), random(sizes[0]));
        values.whole = merge(values.slices, rule, sizes);
      } else {
        values.whole = random(batch);
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          values.slices.push_back(cut(values.whole, rule, sizes, i));
        }
      }
      break;
    case OperandUse::kPartial:
      for (std::size_t i = 0; i < sizes.size(); ++i) values.slices.push_back(random(batch));
      values.whole = merge(values.slices, rule, sizes);
      break;
    case OperandUse::kOnce:
      values.whole = random(batch);
      values.slices.assign(sizes.size(), at::zeros_like(values.whole));
      values.slices[0] = values.whole;
      break;
    case OperandUse::kLocal:
      if (std::any_of(shape.begin(), shape.end(), [](Affine size) { return size.a != 0; })) {
        values.whole = row_numbers(shape, batch);
        for (std::int64_t samples : sizes) values.slices.push_back(row_numbers(shape, samples));
        break;
      }
      [[fallthrough]];
    default:
      values.whole = random(batch);
      values.slices.assign(sizes.size(), values.whole);
  }
  return values;
}

// The indices of a pooling's backward are those that its forward gives.
std::optional<at::Tensor> pooled_from(const graph::ModelGraph& graph, OpId op,
                                      const at::Tensor& x) {
  const std::string_view type = graph.type_name(op);
  const auto args = graph.args(op);
  const auto ints = [&](std::size_t place) {
    std::vector<std::int64_t> list;
    if (place < args.size()) {
      for (const Value& item : args[place].items) list.push_back(item.integer.c);
    }
    return list;
  };
  if (type == "aten.max_pool2d_with_indices_backward.default") {
    return std::get<1>(
        at::max_pool2d_with_indices(x, ints(2), ints(3), ints(4), ints(5), args[6].integer.c != 0));
  }
  if (type == "aten.adaptive_max_pool2d_backward.default") {
    const auto grad = graph.shape(graph.inputs(op)[0]);
    return std::get<1>(at::adaptive_max_pool2d(x, {grad[2].c, grad[3].c}));
  }
  return std::nullopt;
}

}  // namespace

at::Tensor random_operand(const graph::ModelGraph& graph, OpId op, std::size_t index,
                          std::int64_t samples) {
  return random_tensor(graph, op, index, samples,
                       sizes_at(graph.shape(graph.inputs(op)[index]), samples));
}

SplitRule seen_rule(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits,
                    TensorId id) {
  const SplitRule rule = splits.rules[id];
  if (rule.kind != SplitKind::kWhole) return rule;
  const auto shape = graph.shape(id);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!shape[i].constant()) return {SplitKind::kConcat, static_cast<std::uint8_t>(i), 1};
  }
  return {SplitKind::kSame, 0, 1};
}

std::vector<OperandValues> random_operands(const graph::ModelGraph& graph,
                                           const graph::SplitAnalysis& splits, OpId op,
                                           const SliceSizes& sizes, Content content) {
  const auto inputs = graph.inputs(op);
  const auto uses = splits.uses[op];
  std::vector<OperandValues> values;
  // An op that reads a tensor twice reads the same value twice.
  std::map<std::pair<TensorId, OperandUse>, std::size_t> known;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto [place, added] = known.try_emplace({inputs[i], uses[i]}, i);
    if (added) {
      const SplitRule rule = seen_rule(graph, splits, inputs[i]);
      values.push_back(values_of(graph, op, i, uses[i], rule, sizes, content));
    } else {
      values.push_back(values[place->second]);
    }
    const bool integer = executed_dtype(graph.tensor(inputs[i]).dtype) == at::kLong;
    if (i >= 2 && integer && pooled_from(graph, op, values[1].whole)) {
      values[i].whole = *pooled_from(graph, op, values[1].whole);
      for (std::size_t j = 0; j < sizes.size(); ++j) {
        values[i].slices[j] = *pooled_from(graph, op, values[1].slices[j]);
      }
    }
  }
  return values;
}

}  // namespace heterog::split_proof
