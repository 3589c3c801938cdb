// Small graphs for tests, and a maker that builds one in a few lines.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::support {

inline constexpr graph::Affine kB{1, 0};                             // the batch
inline constexpr graph::Affine n(std::int64_t c) { return {0, c}; }  // a constant size

// What an op made by GraphMaker is, where it is not a plain forward op on float32.
struct OpOptions {
  graph::Phase phase = graph::Phase::kForward;
  OpId forward = {};
  graph::TensorRole role = graph::TensorRole::kActivation;
  graph::DType dtype = graph::DType::kFloat32;
  TensorId of = {};
  TensorId replaces = {};
  std::string scope = {};
};

// Tensors come back as ids; ops have one output each and are named after their operator.
class GraphMaker {
 public:
  explicit GraphMaker(const std::string& name = "test") : builder_(name) {}

  using Shape = std::vector<graph::Affine>;
  TensorId input(const std::string& name, Shape shape, graph::DType dtype = graph::DType::kFloat32);
  TensorId parameter(const std::string& name, Shape shape);
  TensorId buffer(const std::string& name, Shape shape);
  TensorId state(const std::string& name, Shape shape, TensorId of);
  // `args` as in a file: tensor_value(t), int_value(3), size_value(1, 0), …
  TensorId op(const std::string& type, std::vector<graph::Value> args, Shape shape,
              const OpOptions& options = {});
  void loss(TensorId tensor) { builder_.set_loss(tensor); }
  // The op that made the tensor.
  OpId maker(TensorId tensor) const { return makers_.at(tensor); }
  graph::ModelGraph build() && { return std::move(builder_).build("test graph"); }

 private:
  TensorId given(const std::string& name, Shape shape, graph::TensorRole role);

  graph::GraphBuilder builder_;
  std::map<TensorId, OpId> makers_;
  std::map<std::string, int> names_;
};

// A training step of x → relu(x·w1ᵀ + b1)·w2ᵀ + b2 under a mean squared error and plain SGD, in the
// form that the exporter gives it: sizes 8 → 16 → 4, 4 parameters, 28 ops.
graph::ModelGraph tiny_mlp_graph();

// What samples look up in a table.
struct LookupTable {
  std::int64_t rows = 1, width = 1, words = 1;
  bool twice = false;  // looked up by two inputs of so many words
  graph::DType gradient = graph::DType::kFloat32;
};

// A training step of loss = Σ table[words] · g, plain SGD: a gradient that may travel as rows.
graph::ModelGraph lookup_graph(const LookupTable& of);

// The text of the graph's file (docs/formats.md), not compressed.
std::string graph_text(const graph::ModelGraph& graph);

}  // namespace heterog::support
