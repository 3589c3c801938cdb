// Random parameters, states, buffers and inputs: what no op of a step makes.
#include "runtime/exec/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "operators/facts.h"

namespace heterog::runtime {
namespace {

using graph::DType;
using graph::TensorRole;

// What integers mean follows from who reads them: rows of a table, labels of a loss.
struct Meaning {
  std::int64_t end = 2;
  std::optional<std::int64_t> ignored;  // read by losses alone: the label that they leave out
};

// What an operator is called without its overload: "aten.ne.Scalar" is "ne".
std::string_view plain_name(std::string_view type) {
  type.remove_prefix(std::min(type.find('.') + 1, type.size()));
  return type.substr(0, type.find('.'));
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Whether an operator may be given the label that a loss leaves out: comparisons, which find it,
// and those that choose by what these found. Others (gather, one_hot, arithmetic) would compute
// with it.
bool knows_left_out(std::string_view type) {
  return is_one_of(plain_name(type), {"eq", "ne", "lt", "le", "gt", "ge", "where", "masked_fill"});
}

// Whether what comes out are some of the same numbers.
bool takes_some(std::string_view type) {
  return is_one_of(plain_name(type), {"slice", "select", "constant_pad_nd"});
}

// Whether a condition compares one of the tensors, views of them and other conditions included.
bool compares_one_of(const graph::ModelGraph& graph, TensorId condition,
                     const std::set<TensorId>& tensors) {
  std::set<TensorId> seen;
  std::vector<TensorId> open = {condition};
  while (!open.empty()) {
    const TensorId tensor = open.back();
    open.pop_back();
    if (tensors.contains(tensor)) return true;
    const OpId producer = graph.tensor(tensor).producer;
    if (!producer.valid()) continue;
    if (graph.tensor(tensor).dtype != DType::kBool && !graph.facts(producer).same_elements)
      continue;
    for (TensorId input : graph.inputs(producer)) {
      if (seen.insert(input).second) open.push_back(input);
    }
  }
  return false;
}

// Whether an operator that chooses keeps the label that is left out: it chooses by something else
// than the label, such as a mask of its own.
bool keeps_left_out(const graph::ModelGraph& graph, OpId op, const std::set<TensorId>& labels) {
  const std::string_view name = plain_name(graph.type_name(op));
  const auto inputs = graph.inputs(op);
  if (name == "where") return !compares_one_of(graph, inputs[0], labels);
  return name == "masked_fill" && !compares_one_of(graph, inputs[1], labels);
}

Meaning meaning_of(const graph::ModelGraph& graph, TensorId id) {
  std::int64_t rows = 0, classes = 0;
  bool of_losses_alone = true;
  std::optional<std::int64_t> ignored;
  std::set<TensorId> seen;
  std::vector<TensorId> open = {id};
  while (!open.empty()) {
    const TensorId tensor = open.back();
    open.pop_back();
    if (!seen.insert(tensor).second) continue;
    for (OpId op : graph.consumers(tensor)) {
      const operators::Facts& facts = graph.facts(op);
      const auto inputs = graph.inputs(op);
      if (facts.indices.of == operators::Indices::Of::kRows) {
        const std::int64_t size = graph.shape(inputs[0])[0].c;
        rows = rows == 0 ? size : std::min(rows, size);
      } else if (facts.family == operators::Family::kIndexedLoss) {
        classes = graph.shape(inputs[0])[1].c;
        ignored = graph.args(op)[4].integer.c;
      } else if (facts.same_elements || takes_some(graph.type_name(op))) {
        open.push_back(graph.outputs(op)[0]);
      } else if (facts.family != operators::Family::kIndexedLossBackward &&
                 (!knows_left_out(graph.type_name(op)) || keeps_left_out(graph, op, seen))) {
        of_losses_alone = false;
      }
    }
  }
  if (rows > 0) return {classes > 0 ? std::min(rows, classes) : rows, std::nullopt};
  if (classes > 0) return {classes, of_losses_alone ? ignored : std::nullopt};
  return {};
}

at::Tensor integers(const graph::ModelGraph& graph, TensorId id, std::vector<std::int64_t> sizes,
                    at::ScalarType type) {
  const Meaning meaning = meaning_of(graph, id);
  if (graph.tensor(id).role == TensorRole::kBuffer) {
    if (sizes.empty()) return at::ones(sizes, type);
    return at::arange(sizes.back(), type).remainder(meaning.end).expand(sizes).contiguous();
  }
  std::int64_t low = 0, end = meaning.end;
  if (const std::optional<graph::ValueRange> seen = graph.tensor(id).values) {
    low = static_cast<std::int64_t>(std::ceil(seen->low));
    end = std::max(static_cast<std::int64_t>(std::floor(seen->high)) + 1, low + 1);
  }
  at::Tensor result = at::randint(low, end, sizes, at::kLong).to(type);
  // Zeros mark padding, in tokens and masks: no sequence is all padding.
  if (sizes.size() >= 2 && low <= 0 && end > 1) result.select(1, 0).fill_(1);
  if (meaning.ignored) {
    const at::Tensor left_out = at::rand(sizes) < 0.2;
    result = at::where(left_out, at::full_like(result, *meaning.ignored), result);
  }
  return result;
}

// Between what was seen. A buffer that was seen with one value that is not 0 is near it.
std::optional<at::Tensor> drawn_between(const graph::Tensor& tensor,
                                        const std::vector<std::int64_t>& sizes,
                                        at::ScalarType type) {
  if (!tensor.values) return std::nullopt;
  auto [low, high] = *tensor.values;
  if (tensor.role == TensorRole::kBuffer && low == high) {
    if (low == 0) return std::nullopt;
    std::tie(low, high) = std::minmax(0.5 * low, 1.5 * low);
  }
  return at::rand(sizes, type) * (high - low) + low;
}

at::Tensor parameter(std::string_view name, const std::vector<std::int64_t>& sizes,
                     at::ScalarType type) {
  if (sizes.size() >= 2) {
    std::int64_t fan_in = 1;
    for (std::size_t i = 1; i < sizes.size(); ++i) fan_in *= sizes[i];
    return at::randn(sizes, type) / std::sqrt(static_cast<double>(fan_in));
  }
  return at::randn(sizes, type) * 0.1 + (name.ends_with("weight") ? 1.0 : 0.0);
}

}  // namespace

bool is_setting(const graph::ModelGraph& graph, TensorId id, std::string_view name) {
  const auto called = [&](TensorId tensor, std::string_view as) {
    return graph.tensor(tensor).role == TensorRole::kInput && graph.tensor(tensor).name == as;
  };
  if (called(id, fmt::format("optimizer/{}", name))) return true;
  // Files from before there was a momentum have the bare names. An argument of a loss may be called
  // so where there is both.
  if (name == "momentum" || !called(id, name) || !graph.shape(id).empty()) return false;
  for (TensorId other : graph.tensor_ids()) {
    if (called(other, "optimizer/lr")) return false;
  }
  return true;
}

at::Tensor random_source(const graph::ModelGraph& graph, TensorId id, std::int64_t samples,
                         Floats floats) {
  const graph::Tensor& tensor = graph.tensor(id);
  const std::vector<std::int64_t> sizes = sizes_at(graph.shape(id), samples);
  const at::ScalarType type = scalar_type(tensor.dtype, floats);
  if (is_setting(graph, id, "lr")) return at::scalar_tensor(0.01, type);
  if (is_setting(graph, id, "momentum")) return at::scalar_tensor(0.9, type);
  if (is_setting(graph, id, "step")) return at::scalar_tensor(3, type);
  if (tensor.dtype == DType::kBool) {
    // A mask of what may not be seen: in a square one, what comes later.
    if (sizes.size() == 2 && sizes[0] == sizes[1]) return at::ones(sizes).triu(1).to(at::kBool);
    at::Tensor mask = at::rand(sizes) < 0.5;
    // Whichever of the two it marks, no row is without it.
    if (sizes.size() >= 2 && sizes.back() >= 2) {
      mask.select(-1, 0).fill_(true);
      mask.select(-1, 1).fill_(false);
    }
    return mask;
  }
  if (!at::isFloatingType(type)) return integers(graph, id, sizes, type);
  if (const std::optional<at::Tensor> seen = drawn_between(tensor, sizes, type)) return *seen;
  switch (tensor.role) {
    case TensorRole::kParameter:
      return parameter(tensor.name, sizes, type);
    case TensorRole::kOptimizerState:
      return at::rand(sizes, type) * 0.01 + 0.001;
    case TensorRole::kBuffer:
      if (tensor.name.ends_with("running_var")) return at::rand(sizes, type) + 0.5;
      return at::randn(sizes, type) * 0.1;
    default:
      return at::randn(sizes, type);
  }
}

}  // namespace heterog::runtime
