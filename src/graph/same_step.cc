// Compares op by op, then tensor by tensor.
#include "graph/same_step.h"

#include <fmt/format.h>

#include <algorithm>

namespace heterog::graph {
namespace {

bool alike(const Value& one, const Value& other) {
  if (one.kind != other.kind || one.text != other.text || one.tensor != other.tensor) return false;
  if (one.kind == Value::Kind::kBool && one.integer != other.integer) return false;
  return std::ranges::equal(one.items, other.items, alike);
}

bool alike_by_name(const std::pair<std::string, Value>& one,
                   const std::pair<std::string, Value>& other) {
  return one.first == other.first && alike(one.second, other.second);
}

std::string op_text(const ModelGraph& graph, OpId op) {
  return fmt::format("'{}' ({})", graph.op(op).name, graph.type_name(op));
}

std::string difference_of_ops(const ModelGraph& one, const ModelGraph& other, OpId op) {
  const Op& a = one.op(op);
  const Op& b = other.op(op);
  if (a.name != b.name || one.type_name(op) != other.type_name(op)) {
    return fmt::format("op {} is {} in one, {} in the other", op.value(), op_text(one, op),
                       op_text(other, op));
  }
  const bool same = a.phase == b.phase && a.forward == b.forward && a.alias == b.alias &&
                    std::ranges::equal(one.inputs(op), other.inputs(op)) &&
                    std::ranges::equal(one.outputs(op), other.outputs(op)) &&
                    std::ranges::equal(one.args(op), other.args(op), alike) &&
                    std::ranges::equal(one.kwargs(op), other.kwargs(op), alike_by_name);
  return same ? "" : fmt::format("op {} has other arguments or operands", op_text(one, op));
}

bool same_sizes(const ModelGraph& one, const ModelGraph& other, TensorId tensor) {
  return std::ranges::equal(one.shape(tensor), other.shape(tensor));
}

std::string difference_of_tensors(const ModelGraph& one, const ModelGraph& other, TensorId tensor) {
  const Tensor& a = one.tensor(tensor);
  const Tensor& b = other.tensor(tensor);
  const auto batch_alike = [](const Affine& x, const Affine& y) {
    return x.constant() == y.constant();
  };
  const bool same = a.name == b.name && a.dtype == b.dtype && a.role == b.role && a.of == b.of &&
                    a.replaces == b.replaces && a.producer == b.producer &&
                    std::ranges::equal(one.shape(tensor), other.shape(tensor), batch_alike);
  if (!same) {
    return fmt::format("tensor {} is '{}' in one, '{}' in the other, of other form", tensor.value(),
                       a.name, b.name);
  }
  const bool trained = a.role == TensorRole::kParameter || a.role == TensorRole::kOptimizerState;
  if (trained && !same_sizes(one, other, tensor)) {
    return fmt::format("'{}' has another shape", a.name);
  }
  if (a.replaces.valid() && !same_sizes(one, other, a.replaces)) {
    return fmt::format("'{}' has another shape", one.tensor(a.replaces).name);
  }
  return "";
}

}  // namespace

std::string difference_beside_sizes(const ModelGraph& one, const ModelGraph& other) {
  for (OpId op : id_range<OpId>(std::min(one.op_count(), other.op_count()))) {
    std::string found = difference_of_ops(one, other, op);
    if (!found.empty()) return found;
  }
  if (one.op_count() != other.op_count()) {
    return fmt::format("one has {} ops, the other {}", one.op_count(), other.op_count());
  }
  if (one.tensor_count() != other.tensor_count()) {
    return fmt::format("one has {} tensors, the other {}", one.tensor_count(),
                       other.tensor_count());
  }
  for (TensorId tensor : one.tensor_ids()) {
    std::string found = difference_of_tensors(one, other, tensor);
    if (!found.empty()) return found;
  }
  return one.loss() == other.loss() ? "" : "another tensor is the loss";
}

}  // namespace heterog::graph
