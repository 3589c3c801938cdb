// One walk over the graph that sums times and bytes by group.
#include "planner/group_stats.h"

#include "base/hash.h"

namespace heterog::planner {

namespace {

using graph::ModelGraph;
using graph::Phase;
using graph::TensorRole;

// Bytes of the tensors that forward makes and backward reads, aliases followed to their base.
void add_saved(const cost::Problem& problem, IdVector<GroupId, GroupStats>& stats) {
  const ModelGraph& graph = *problem.graph;
  std::vector<bool> saved(graph.tensor_count(), false);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase == Phase::kForward || graph.op(op).alias) continue;
    for (TensorId input : graph.inputs(op)) {
      const TensorId root = graph.root(input);
      const OpId producer = graph.tensor(root).producer;
      if (!producer.valid() || graph.op(producer).phase != Phase::kForward) continue;
      if (saved[root.value()]) continue;
      saved[root.value()] = true;
      stats[problem.grouping.group_of[producer]].saved_bytes += graph.bytes(root, problem.batch);
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

IdVector<GroupId, GroupStats> group_stats(const cost::Problem& problem) {
  const ModelGraph& graph = *problem.graph;
  const cluster::Cluster& cluster = *problem.cluster;
  IdVector<GroupId, GroupStats> stats(problem.grouping.count());
  for (GroupStats& group : stats) group.seconds_on.assign(cluster.type_count(), 0);

  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    GroupStats& group = stats[problem.grouping.group_of[op]];
    group.seconds += problem.costs.mean_seconds(op);
    for (std::size_t type = 0; type < cluster.type_count(); ++type) {
      group.seconds_on[type] +=
          to_seconds(problem.costs.duration(op, DeviceTypeId(type), problem.batch));
    }
  }
  const IdVector<TensorId, GroupId> owner = parameter_groups(problem);
  for (TensorId tensor : graph.tensor_ids()) {
    const graph::Tensor& info = graph.tensor(tensor);
    if (info.role == TensorRole::kParameter && owner[tensor].valid()) {
      stats[owner[tensor]].parameter_bytes += graph.bytes(tensor, problem.batch);
    }
    if (info.role == TensorRole::kOptimizerState && info.of.valid() && owner[info.of].valid()) {
      stats[owner[info.of]].optimizer_bytes += graph.bytes(tensor, problem.batch);
    }
  }
  add_saved(problem, stats);

  for (GroupId id : id_range<GroupId>(stats.size())) {
    GroupStats& group = stats[id];
    Hasher hasher;
    hasher.add(static_cast<std::uint64_t>(group.parameter_bytes));
    hasher.add(static_cast<std::uint64_t>(group.saved_bytes));
    for (OpId op : problem.grouping.members[id]) {
      if (graph.op(op).phase == Phase::kForward && !graph.op(op).alias) {
        hasher.add(graph.type_name(op));
      }
    }
    group.likeness = hasher.value();
  }
  return stats;
}

}  // namespace heterog::planner
