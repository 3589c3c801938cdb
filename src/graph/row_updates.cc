// Looks at the operators, shapes and readers of each chain.
#include "graph/row_updates.h"

#include <algorithm>

#include "operators/facts.h"

namespace heterog::graph {
namespace {

bool is_inside(const UpdateChain& chain, OpId op) {
  return std::ranges::binary_search(chain.ops, op);
}

bool read_inside_alone(const ModelGraph& graph, const UpdateChain& chain, TensorId tensor) {
  return std::ranges::all_of(graph.consumers(tensor),
                             [&](OpId reader) { return is_inside(chain, reader); });
}

bool is_by_rows(const ModelGraph& graph, const UpdateChain& chain) {
  const auto shape = graph.shape(chain.parameter);
  if (shape.empty() || !shape[0].constant() || shape[0].c < 2) return false;
  const auto has_rows = [&](TensorId tensor) {
    return std::ranges::equal(graph.shape(tensor), shape);
  };
  const auto fits = [&](TensorId tensor) {
    return !tensor.valid() || graph.shape(tensor).empty() || has_rows(tensor);
  };
  for (OpId op : chain.ops) {
    if (!graph.facts(op).in_place_twin && !graph.facts(op).by_element) return false;
    if (!std::ranges::all_of(graph.inputs(op), fits)) return false;
    if (!std::ranges::all_of(graph.outputs(op), fits)) return false;
    for (TensorId out : graph.outputs(op)) {
      if (out.valid() && has_rows(out) && !read_inside_alone(graph, chain, out)) return false;
    }
  }
  for (const Read& read : chain.reads) {
    const bool state = graph.tensor(read.base).role == TensorRole::kOptimizerState;
    if (!state || !has_rows(read.base)) continue;
    if (!read_inside_alone(graph, chain, read.base)) return false;
  }
  return true;
}

}  // namespace

void find_row_updates(const ModelGraph& graph, std::vector<UpdateChain>& chains) {
  for (UpdateChain& chain : chains) {
    chain.by_rows = is_by_rows(graph, chain);
    if (!chain.by_rows) continue;
    for (const Read& read : chain.reads) {
      if (graph.tensor(read.base).role == TensorRole::kOptimizerState &&
          !graph.shape(read.base).empty()) {
        chain.row_state.push_back(read.base);
      }
    }
    std::ranges::sort(chain.row_state);
    const auto repeated = std::ranges::unique(chain.row_state);
    chain.row_state.erase(repeated.begin(), repeated.end());
  }
}

TensorId form_for_update(const ModelGraph& graph, const UpdateChain& chain, TensorId gradient) {
  TensorId form = gradient;
  while (!read_inside_alone(graph, chain, form)) {
    const auto readers = graph.consumers(form);
    if (readers.size() != 1 || !graph.op(readers.front()).alias) return {};
    const auto views = graph.outputs(readers.front());
    if (views.size() != 1 || graph.elements(views.front(), 1) != graph.elements(form, 1)) return {};
    form = views.front();
  }
  const auto shape = graph.shape(chain.parameter);
  return std::ranges::equal(graph.shape(form), shape) ? form : TensorId();
}

}  // namespace heterog::graph
