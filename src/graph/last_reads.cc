// By consumers, which are in the order of the graph.
#include "graph/last_reads.h"

namespace heterog::graph {

IdVector<OpId, std::vector<TensorId>> dead_after(const ModelGraph& graph) {
  IdVector<OpId, std::vector<TensorId>> dead(graph.op_count());
  for (TensorId id : graph.tensor_ids()) {
    const Tensor& tensor = graph.tensor(id);
    if (!tensor.producer.valid() || tensor.role == TensorRole::kOutput) continue;
    const auto readers = graph.consumers(id);  // ascending
    dead[readers.empty() ? tensor.producer : readers.back()].push_back(id);
  }
  return dead;
}

}  // namespace heterog::graph
