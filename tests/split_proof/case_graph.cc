// Turns a hand-written case into a graph.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "graph/graph_io.h"
#include "split_proof/cases.h"
#include "split_proof/execute.h"
#include "split_proof/operands.h"

namespace heterog::split_proof {
namespace {

using Json = nlohmann::json;

// Collects tensors and ops in the form of graph files.
class Writer {
 public:
  Writer() {
    // A loss has to be there.
    add_op("aten.zeros.default", Json::array({Json::array()}), Json::object(),
           {add_tensor("output", Json::array(), "float32")});
  }

  std::size_t add_tensor(const std::string& role, Json shape, const std::string& dtype) {
    tensors_.push_back({{"name", fmt::format("t{}", tensors_.size())},
                        {"role", role},
                        {"dtype", dtype},
                        {"shape", std::move(shape)}});
    return tensors_.size() - 1;
  }
  void add_op(const std::string& type, Json args, Json kwargs, Json outputs) {
    ops_.push_back({{"name", fmt::format("op{}", ops_.size())},
                    {"op", type},
                    {"phase", "forward"},
                    {"args", std::move(args)},
                    {"kwargs", std::move(kwargs)},
                    {"outputs", std::move(outputs)}});
  }
  graph::ModelGraph graph() const {
    const Json all = {{"format", "heterog-graph"},
                      {"version", 1},
                      {"name", "case"},
                      {"dtype", "float32"},
                      {"loss", 0},
                      {"tensors", tensors_},
                      {"ops", ops_}};
    return graph::parse_graph(all.dump(), "case");
  }

 private:
  Json tensors_ = Json::array();
  Json ops_ = Json::array();
};

Json size_json(const std::string& text) {
  if (text.find('B') != std::string::npos) return text;
  return std::stoll(text);
}

Json shape_json(const std::string& text) {
  Json shape = Json::array();
  std::stringstream stream(text == "-" ? "" : text);
  for (std::string size; std::getline(stream, size, ',');) shape.push_back(size_json(size));
  return shape;
}

std::size_t add_operand(Writer& writer, const std::string& spec) {
  std::stringstream stream(spec);
  std::string maker, sizes, dtype = "float32";
  stream >> maker >> sizes >> dtype;
  const Json shape = shape_json(sizes);
  if (maker == "in") return writer.add_tensor("input", shape, dtype);
  if (maker == "sum" || maker == "mean") {
    Json sources = shape;
    sources.insert(sources.begin(), "B");
    const std::size_t source = writer.add_tensor("input", sources, dtype);
    const std::size_t result = writer.add_tensor("activation", shape, dtype);
    writer.add_op(maker == "sum" ? "aten.sum.dim_IntList" : "aten.mean.dim",
                  Json::array({fmt::format("%{}", source), Json::array({0})}), Json::object(),
                  {result});
    return result;
  }
  if (maker == "rows") {
    // A view that puts the rows where they belong, and an expand along the other sizes.
    std::string count = "B";
    Json apart = Json::array(), arguments = Json::array(), places = Json::array();
    for (const Json& size : shape) {
      if (size.is_string()) count = size.get<std::string>();
      apart.push_back(size.is_string() ? size : Json(1));
      arguments.push_back(size.is_string() ? Json("#" + count) : size);
      places.push_back(size.is_string() ? Json("#" + count) : Json(1));
    }
    const std::size_t rows = writer.add_tensor("activation", Json::array({count}), "int64");
    writer.add_op("aten.arange.default", Json::array({"#" + count}), Json::object(), {rows});
    const std::size_t view = writer.add_tensor("activation", apart, "int64");
    writer.add_op("aten.view.default", Json::array({fmt::format("%{}", rows), places}),
                  Json::object(), {view});
    if (apart == shape) return view;
    const std::size_t result = writer.add_tensor("activation", shape, "int64");
    writer.add_op("aten.expand.default", Json::array({fmt::format("%{}", view), arguments}),
                  Json::object(), {result});
    return result;
  }
  ENSURE(maker == "outer2");
  Json apart = Json::array(), arguments = Json::array();
  for (const Json& size : shape) {
    arguments.push_back(size.is_string() ? Json("#" + size.get<std::string>()) : size);
    if (size.is_string()) {
      apart.push_back(2);
      apart.push_back(fmt::format("{}B", std::stoll(size.get<std::string>()) / 2));
    } else {
      apart.push_back(size);
    }
  }
  const std::size_t source = writer.add_tensor("input", apart, dtype);
  const std::size_t result = writer.add_tensor("activation", shape, dtype);
  writer.add_op("aten.view.default", Json::array({fmt::format("%{}", source), arguments}),
                Json::object(), {result});
  return result;
}

// "%0" of the case → the tensor that was made for it.
void rename(Json& value, const std::vector<std::size_t>& ids) {
  if (value.is_array()) {
    for (Json& item : value) rename(item, ids);
  } else if (value.is_string() && value.get<std::string>().starts_with('%')) {
    value = fmt::format("%{}", ids.at(std::stoul(value.get<std::string>().substr(1))));
  }
}

std::vector<at::Tensor> results_at(const graph::ModelGraph& graph, std::int64_t samples) {
  const OpId op(graph.op_count() - 1);
  std::vector<at::Tensor> operands;
  for (std::size_t i = 0; i < graph.inputs(op).size(); ++i) {
    operands.push_back(random_operand(graph, op, i, samples));
  }
  const Samples whole{.slice = samples, .whole = samples};
  if (drops_weights(graph, op)) return execute(graph, op, operands, whole);
  // The graph does not say yet how many there are.
  const runtime::OperatorCall call(graph, op, whole, {.floats = runtime::Floats::kDouble});
  return runtime::flat_results(call.call_boxed(call.bind(operands)));
}

std::string dtype_text(at::ScalarType type) {
  if (type == at::kLong) return "int64";
  return type == at::kBool ? "bool" : "float32";
}

}  // namespace

graph::ModelGraph graph_of(const Case& example) {
  Writer writer;
  std::vector<std::size_t> ids;
  for (const std::string& operand : example.operands) ids.push_back(add_operand(writer, operand));
  Json args = Json::parse(example.args), kwargs = Json::parse(example.kwargs);
  rename(args, ids);
  for (Json& value : kwargs) rename(value, ids);

  Writer trial = writer;
  trial.add_op(example.type, args, kwargs,
               {trial.add_tensor("activation", Json::array(), "float32")});
  const graph::ModelGraph draft = trial.graph();
  constexpr std::array<std::int64_t, 3> kBatches = {4, 6, 10};
  const auto at_first = results_at(draft, kBatches[0]), at_second = results_at(draft, kBatches[1]),
             at_third = results_at(draft, kBatches[2]);

  VALIDATE(at_first.size() == at_second.size() && at_first.size() == at_third.size(),
           "{}: the number of results depends on the batch", example.type);
  Json outputs = Json::array();
  for (std::size_t i = 0; i < at_first.size(); ++i) {
    if (!at_first[i].defined()) {
      outputs.push_back(nullptr);
      continue;
    }
    Json shape = Json::array();
    for (std::int64_t dim = 0; dim < at_first[i].dim(); ++dim) {
      const std::int64_t first = at_first[i].size(dim);
      const std::int64_t a = (at_second[i].size(dim) - first) / (kBatches[1] - kBatches[0]);
      const graph::Affine size{a, first - a * kBatches[0]};
      VALIDATE(at_third[i].size(dim) == size.at(kBatches[2]) &&
                   at_second[i].size(dim) == size.at(kBatches[1]),
               "{}: a size of a result is not affine in the batch", example.type);
      shape.push_back(a == 0 ? Json(size.c) : Json(graph::affine_text(size)));
    }
    outputs.push_back(
        writer.add_tensor("activation", shape, dtype_text(at_first[i].scalar_type())));
  }
  writer.add_op(example.type, args, kwargs, outputs);
  return writer.graph();
}

}  // namespace heterog::split_proof
