// Writes graphs in their file form, so that tests can read them back.
#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/value_text.h"
#include "support/graphs.h"

namespace heterog::support {
namespace {

using Json = nlohmann::ordered_json;
using graph::Value;

Json value_json(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNone:
      return nullptr;
    case Value::Kind::kBool:
      return value.integer.c != 0;
    case Value::Kind::kInt:
      return value.integer.c;
    case Value::Kind::kFloat:
      return std::isfinite(value.number) ? Json(value.number) : Json(graph::value_text(value));
    case Value::Kind::kList: {
      Json items = Json::array();
      for (const Value& item : value.items) items.push_back(value_json(item));
      return items;
    }
    default:
      return graph::value_text(value);
  }
}

Json tensor_json(const graph::ModelGraph& graph, TensorId id) {
  const graph::Tensor& tensor = graph.tensor(id);
  Json json;
  json["name"] = tensor.name;
  json["role"] = graph::role_name(tensor.role);
  json["dtype"] = graph::dtype_name(tensor.dtype);
  json["shape"] = Json::array();
  for (const graph::Affine& dim : graph.shape(id)) {
    json["shape"].push_back(dim.constant() ? Json(dim.c) : Json(graph::affine_text(dim)));
  }
  if (tensor.of.valid()) json["of"] = tensor.of.value();
  if (tensor.replaces.valid()) json["replaces"] = tensor.replaces.value();
  return json;
}

Json op_json(const graph::ModelGraph& graph, OpId id) {
  const graph::Op& op = graph.op(id);
  Json json;
  json["name"] = op.name;
  json["op"] = graph.type_name(id);
  json["phase"] = graph::phase_name(op.phase);
  if (op.forward.valid()) json["forward"] = op.forward.value();
  if (!graph.scope(id).empty()) json["scope"] = graph.scope(id);
  json["args"] = Json::array();
  for (const Value& value : graph.args(id)) json["args"].push_back(value_json(value));
  for (const auto& [key, value] : graph.kwargs(id)) json["kwargs"][key] = value_json(value);
  json["outputs"] = Json::array();
  for (TensorId output : graph.outputs(id)) {
    json["outputs"].push_back(output.valid() ? Json(output.value()) : Json(nullptr));
  }
  return json;
}

}  // namespace

std::string graph_text(const graph::ModelGraph& graph) {
  Json json;
  json["format"] = "heterog-graph";
  json["version"] = 1;
  json["name"] = graph.name();
  const auto parameters = graph.parameters();
  json["dtype"] = graph::dtype_name(parameters.empty() ? graph::DType::kFloat32
                                                       : graph.tensor(parameters[0]).dtype);
  if (graph.loss().valid()) json["loss"] = graph.loss().value();
  json["tensors"] = Json::array();
  for (TensorId id : graph.tensor_ids()) json["tensors"].push_back(tensor_json(graph, id));
  json["ops"] = Json::array();
  for (OpId id : graph.op_ids()) json["ops"].push_back(op_json(graph, id));
  return json.dump(1);
}

}  // namespace heterog::support
