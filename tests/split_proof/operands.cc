// Random operands for one op of a graph, whole and as its slices would read them.
#include "split_proof/operands.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/kernels/operands.h"
#include "split_proof/execute.h"

namespace heterog::split_proof {
namespace {

using graph::Affine;
using graph::DType;
using graph::OperandUse;
using graph::SplitKind;
using graph::SplitRule;

// In double precision.
at::Tensor random_tensor(const graph::ModelGraph& graph, OpId op, std::size_t index,
                         std::int64_t samples, std::vector<std::int64_t> sizes) {
  return runtime::random_operand(graph, op,
                                 {.index = index,
                                  .samples = samples,
                                  .sizes = std::move(sizes),
                                  .floats = runtime::Floats::kDouble});
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

}  // namespace

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

at::Tensor random_operand(const graph::ModelGraph& graph, OpId op, std::size_t index,
                          std::int64_t samples) {
  return random_tensor(graph, op, index, samples,
                       sizes_at(graph.shape(graph.inputs(op)[index]), samples));
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
      const SplitRule rule = graph::seen_rule(graph, splits, inputs[i]);
      values.push_back(values_of(graph, op, i, uses[i], rule, sizes, content));
    } else {
      values.push_back(values[place->second]);
    }
    const bool integer = graph.tensor(inputs[i]).dtype == DType::kInt64;
    if (i >= 2 && integer && runtime::pooling_indices(graph, op, values[1].whole)) {
      values[i].whole = *runtime::pooling_indices(graph, op, values[1].whole);
      for (std::size_t j = 0; j < sizes.size(); ++j) {
        values[i].slices[j] = *runtime::pooling_indices(graph, op, values[1].slices[j]);
      }
    }
  }
  return values;
}

}  // namespace heterog::split_proof
