// One walk over the graph that sums times and bytes by group.
#include "space/group_summary.h"

#include "base/hash.h"

namespace heterog::space {

namespace {

using graph::ModelGraph;
using graph::Phase;
using graph::TensorRole;

// Bytes of the tensors that forward makes and backward reads, aliases followed to their base.
void add_activations(const cost::Problem& problem, GroupSummaries& groups) {
  const ModelGraph& graph = *problem.graph;
  std::vector<bool> counted(graph.tensor_count(), false);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase == Phase::kForward || graph.op(op).alias) continue;
    for (TensorId input : graph.inputs(op)) {
      const TensorId root = graph.root(input);
      const OpId producer = graph.tensor(root).producer;
      if (!producer.valid() || graph.op(producer).phase != Phase::kForward) continue;
      if (counted[root.value()]) continue;
      counted[root.value()] = true;
      groups[problem.grouping.group_of[producer]].activation_bytes +=
          graph.bytes(root, problem.batch);
    }
  }
}

}  // namespace

IdVector<TensorId, GroupId> parameter_groups(const cost::Problem& problem) {
  const ModelGraph& graph = *problem.graph;
  IdVector<TensorId, GroupId> owner(graph.tensor_count(), GroupId());
  for (TensorId tensor : graph.tensor_ids()) {
    const graph::Tensor& info = graph.tensor(tensor);
    if (info.role != TensorRole::kOutput || !info.replaces.valid()) continue;
    if (info.producer.valid()) owner[info.replaces] = problem.grouping.group_of[info.producer];
  }
  for (TensorId parameter : graph.parameters()) {
    if (owner[parameter].valid() || graph.consumers(parameter).empty()) continue;
    owner[parameter] = problem.grouping.group_of[graph.consumers(parameter)[0]];
  }
  return owner;
}

GroupSummaries summarize_groups(const cost::Problem& problem) {
  const ModelGraph& graph = *problem.graph;
  const cluster::Cluster& cluster = *problem.cluster;
  GroupSummaries groups(problem.grouping.count());
  for (GroupSummary& group : groups) group.seconds_on.assign(cluster.type_count(), 0);

  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    GroupSummary& group = groups[problem.grouping.group_of[op]];
    const double seconds = problem.costs.mean_seconds(op);
    ++group.ops;
    group.seconds += seconds;
    if (graph.op(op).phase == Phase::kForward) group.forward_seconds += seconds;
    if (!problem.splits->sliceable[op]) group.whole_seconds += seconds;
    for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) {
      group.seconds_on[type] += to_seconds(problem.costs.duration(op, type, problem.batch));
    }
  }
  const IdVector<TensorId, GroupId> owner = parameter_groups(problem);
  for (TensorId tensor : graph.tensor_ids()) {
    const graph::Tensor& info = graph.tensor(tensor);
    if (info.role == TensorRole::kParameter && owner[tensor].valid()) {
      groups[owner[tensor]].parameter_bytes += graph.bytes(tensor, problem.batch);
    }
    if (info.role == TensorRole::kOptimizerState && info.of.valid() && owner[info.of].valid()) {
      groups[owner[info.of]].optimizer_bytes += graph.bytes(tensor, problem.batch);
    }
  }
  add_activations(problem, groups);

  for (GroupId id : id_range<GroupId>(groups.size())) {
    GroupSummary& group = groups[id];
    Hasher hasher;
    hasher.add(static_cast<std::uint64_t>(group.parameter_bytes));
    hasher.add(static_cast<std::uint64_t>(group.activation_bytes));
    for (OpId op : problem.grouping.members[id]) {
      if (graph.op(op).phase == Phase::kForward && !graph.op(op).alias) {
        hasher.add(graph.type_name(op));
      }
    }
    group.likeness = hasher.value();
  }
  return groups;
}

}  // namespace heterog::space
