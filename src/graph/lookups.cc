// Walks back from a gradient to the look-ups whose gradients it sums.
#include "graph/lookups.h"

namespace heterog::graph {

std::optional<Lookups> lookups(const ModelGraph& graph, TensorId gradient, std::int64_t samples) {
  const OpId producer = graph.tensor(gradient).producer;
  if (!producer.valid()) return std::nullopt;
  const auto inputs = graph.inputs(producer);
  const operators::Facts& facts = graph.facts(producer);
  if (const auto& sparse = facts.sparse_gradient) {
    const TensorId indices = inputs[sparse->indices];
    return Lookups{graph.elements(indices, samples), graph.bytes(indices, samples),
                   graph.bytes(inputs[sparse->rows], samples)};
  }
  if (!facts.sum) return std::nullopt;
  Lookups total;
  for (TensorId addend : inputs) {
    const auto of_addend = lookups(graph, addend, samples);
    if (!of_addend) return std::nullopt;
    total.rows += of_addend->rows;
    total.index_bytes += of_addend->index_bytes;
    total.row_bytes += of_addend->row_bytes;
  }
  return total;
}

}  // namespace heterog::graph
