// Looking at model graphs, and collecting their parts; build_graph.cc checks and freezes them.
#include "graph/model_graph.h"

namespace heterog::graph {

std::int64_t ModelGraph::product_of_shape(TensorId id, std::int64_t samples) const {
  std::int64_t product = 1;
  for (const Affine& dim : shapes_[id]) product *= dim.at(samples);
  return product;
}

void ModelGraph::add_shape(std::span<const Affine> shape) {
  shapes_.push_row(shape);
  Elements elements{true, {0, 1}};
  for (const Affine& dim : shape) {
    elements.is_affine &= dim.constant() || elements.affine.constant();
    // Of two factors one is constant, or the product is not used; unsigned, since sizes that
    // overflow are only refused later.
    const auto times = [](std::int64_t x, std::int64_t y) {
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(x) *
                                       static_cast<std::uint64_t>(y));
    };
    elements.affine = {
        static_cast<std::int64_t>(static_cast<std::uint64_t>(times(elements.affine.a, dim.c)) +
                                  static_cast<std::uint64_t>(times(elements.affine.c, dim.a))),
        times(elements.affine.c, dim.c)};
  }
  elements_.push_back(elements);
}

std::int64_t ModelGraph::parameter_elements() const {
  std::int64_t sum = 0;
  for (TensorId parameter : parameters_) sum += elements(parameter, 1);
  return sum;
}

GraphBuilder::GraphBuilder(std::string name) {
  graph_.name_ = std::move(name);
  graph_.scopes_.emplace_back();
  scopes_.emplace("", 0);
}

TensorId GraphBuilder::add_tensor(TensorSpec spec) {
  graph_.add_shape(spec.shape);
  Tensor tensor;
  tensor.name = std::move(spec.name);
  tensor.dtype = spec.dtype;
  tensor.role = spec.role;
  tensor.of = spec.of;
  tensor.replaces = spec.replaces;
  tensor.channels_last = spec.channels_last;
  tensor.values = spec.values;
  for (const Affine& dim : spec.shape) tensor.has_batch |= !dim.constant();
  return graph_.tensors_.push_back(std::move(tensor));
}

OpId GraphBuilder::add_op(OpSpec spec) {
  Op op;
  op.name = std::move(spec.name);
  op.phase = spec.phase;
  op.forward = spec.forward;
  const auto [type, new_type] =
      types_.try_emplace(std::move(spec.type), OpTypeId(graph_.type_names_.size()));
  if (new_type) {
    graph_.type_names_.push_back(type->first);
    graph_.facts_.push_back(&operators::facts(type->first));
  }
  op.type = type->second;
  const auto [scope, new_scope] =
      scopes_.try_emplace(std::move(spec.scope), static_cast<std::uint32_t>(graph_.scopes_.size()));
  if (new_scope) graph_.scopes_.push_back(scope->first);
  op.scope = scope->second;
  for (Value& value : spec.args) graph_.args_.push(std::move(value));
  graph_.args_.end_row();
  for (auto& pair : spec.kwargs) graph_.kwargs_.push(std::move(pair));
  graph_.kwargs_.end_row();
  graph_.outputs_.push_row(spec.outputs);
  return graph_.ops_.push_back(std::move(op));
}

Value tensor_value(TensorId id) {
  Value value;
  value.kind = Value::Kind::kTensor;
  value.tensor = id;
  return value;
}

Value int_value(std::int64_t integer) {
  Value value;
  value.kind = Value::Kind::kInt;
  value.integer.c = integer;
  return value;
}

Value float_value(double number) {
  Value value;
  value.kind = Value::Kind::kFloat;
  value.number = number;
  return value;
}

Value size_value(std::int64_t a, std::int64_t c) {
  Value value;
  value.kind = Value::Kind::kSize;
  value.integer = {a, c};
  return value;
}

Value list_value(std::vector<Value> items) {
  Value value;
  value.kind = Value::Kind::kList;
  value.items = std::move(items);
  return value;
}

}  // namespace heterog::graph
