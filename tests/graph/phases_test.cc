// Nothing in a backward pass waits for all of the forward pass (docs/design.md §4.2): what slices
// compute forward is reduced over them for the reported loss alone. Pipelines rest on it.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "graph/graph_io.h"
#include "graph/split.h"
#include "support/graphs.h"

namespace heterog::graph {
namespace {

// Tensors that a slice's forward pass computes with parameters: not labels, nor what follows from
// them and from the batch alone.
IdVector<TensorId, std::uint8_t> computed_forward(const ModelGraph& graph) {
  IdVector<TensorId, std::uint8_t> computed(graph.tensor_count(), 0);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != Phase::kForward) continue;
    bool reads = false;
    for (TensorId id : graph.inputs(op)) {
      reads |= computed[id] != 0 || graph.tensor(id).role == TensorRole::kParameter;
    }
    for (TensorId id : graph.outputs(op)) {
      if (id.valid()) computed[id] = reads ? 1 : 0;
    }
  }
  return computed;
}

// "op reads tensor", for each read of the backward pass that crosses the slices of forward.
std::vector<std::string> waits(const ModelGraph& graph) {
  const SplitAnalysis splits = analyze_splits(graph);
  const auto computed = computed_forward(graph);
  std::vector<std::string> found;
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != Phase::kBackward) continue;
    const auto inputs = graph.inputs(op);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const OperandUse use = splits.uses[op][i];
      const bool crosses = use == OperandUse::kReduced || use == OperandUse::kWhole;
      if (!crosses || computed[inputs[i]] == 0) continue;
      found.push_back(graph.op(op).name + " reads " + graph.tensor(inputs[i]).name);
    }
  }
  return found;
}

TEST(Phases, MeetOnSlicesInTheZoo) {
  int graphs = 0;
  for (const auto& entry : std::filesystem::directory_iterator("models")) {
    if (!entry.path().string().ends_with("-tiny.json.gz")) continue;
    EXPECT_EQ(waits(read_graph(entry.path())), std::vector<std::string>()) << entry.path();
    ++graphs;
  }
  EXPECT_GT(graphs, 15);
}

// loss = (Σ x w)²: its gradient is 2 (Σ x w) x, for which every slice waits for all others.
TEST(Phases, MeetOnTheWholeBatchWhereALossIsNoSum) {
  support::GraphMaker maker;
  const support::OpOptions backward = {.phase = Phase::kBackward};
  const TensorId x = maker.input("x", {support::kB, support::n(3)});
  const TensorId w = maker.parameter("w", {support::n(3)});
  const TensorId product =
      maker.op("aten.mul.Tensor", {tensor_value(x), tensor_value(w)}, {support::kB, support::n(3)});
  const TensorId sum = maker.op("aten.sum.default", {tensor_value(product)}, {});
  maker.loss(maker.op("aten.mul.Tensor", {tensor_value(sum), tensor_value(sum)}, {},
                      {.role = TensorRole::kOutput}));
  maker.op("aten.mul.Tensor", {tensor_value(x), tensor_value(sum)}, {support::kB, support::n(3)},
           backward);
  EXPECT_EQ(waits(std::move(maker).build()).size(), 1u);
}

}  // namespace
}  // namespace heterog::graph
