// Looks through aliases to the ops that make and read data.
#include "space/op_graph.h"

#include <map>
#include <set>

namespace heterog::space {

using graph::TensorRole;

OpGraph make_op_graph(const cost::Problem& problem) {
  const graph::ModelGraph& graph = *problem.graph;
  OpGraph made;
  made.node_of.assign(graph.op_count(), 0);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    made.node_of[op.value()] = static_cast<std::uint32_t>(made.nodes.size());
    made.nodes.push_back(op);
  }
  const std::int64_t batch = problem.batch;
  made.bytes_in.assign(made.nodes.size(), 0);
  made.bytes_out.assign(made.nodes.size(), 0);
  made.parameter_bytes_in.assign(made.nodes.size(), 0);
  made.readers.assign(made.nodes.size(), 0);
  made.sources.assign(made.nodes.size(), 0);
  for (std::uint32_t node = 0; node < made.nodes.size(); ++node) {
    std::map<std::uint32_t, Bytes> sources;
    std::set<TensorId> seen;
    for (TensorId input : graph.inputs(made.nodes[node])) {
      if (!seen.insert(input).second) continue;
      const TensorId root = graph.root(input);
      const Bytes bytes = graph.bytes(input, batch);
      made.bytes_in[node] += bytes;
      if (graph.tensor(root).role == TensorRole::kParameter) made.parameter_bytes_in[node] += bytes;
      const OpId producer = graph.tensor(root).producer;
      if (producer.valid() && !graph.op(producer).alias) {
        sources[made.node_of[producer.value()]] += bytes;
      }
    }
    for (TensorId output : graph.outputs(made.nodes[node])) {
      if (output.valid()) made.bytes_out[node] += graph.bytes(output, batch);
    }
    for (const auto& [source, bytes] : sources) {
      made.edges.push_back({source, node, bytes});
      ++made.readers[source];
      ++made.sources[node];
    }
  }
  for (OpId op : graph.op_ids()) {
    if (!graph.op(op).alias) continue;
    const auto outputs = graph.outputs(op);
    if (outputs.empty() || !outputs[0].valid()) continue;
    const OpId producer = graph.tensor(graph.root(outputs[0])).producer;
    if (producer.valid() && !graph.op(producer).alias) {
      made.node_of[op.value()] = made.node_of[producer.value()];
    }
  }
  return made;
}

}  // namespace heterog::space
