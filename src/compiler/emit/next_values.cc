// Pulls of parameters and buffers, and means of running statistics.
#include "compiler/emit/next_values.h"

#include <algorithm>
#include <map>

#include "compiler/emit/bucket.h"
#include "compiler/emit/parts.h"
#include "compiler/emit/transfers.h"
#include "decide/servers.h"

namespace heterog::compiler {
namespace {

using graph::Phase;
using graph::SplitKind;

// Over the old value, after its readers. The result is where it arrives.
Location pull(Emission& e, TensorId old, OpId maker, const Location& from, DeviceId to) {
  const Source pulled = transfer(e,
                                 {.kind = TaskKind::kPull,
                                  .op = maker,
                                  .tensor = old,
                                  .source = from.device,
                                  .destination = to,
                                  .end = e.problem.batch,
                                  .bytes = e.problem.graph->bytes(old, 1)},
                                 {from.source.task, BufferId()});
  wait_for_readers(e, old, to, pulled.task);
  return {to, {pulled.task, BufferId()}};
}

// Where the next value of a tensor that stays is made, or put together from slices; nowhere if the
// chain that makes it is left out.
std::vector<Location> replaced(const Emission& e, TensorId next) {
  if (const auto* total = e.where.total(next)) return *total;
  const OpId maker = e.problem.graph->tensor(next).producer;
  if (e.layout.of_op[maker].valid()) return e.where.instances(next, maker);
  const TensorId parameter = e.problem.folded->home[maker];
  if (e.layout.home_of[parameter] == decide::Layout::kNoHome) return {};
  const OpId updater = decide::update_op(e.problem, chain_of(*e.problem.folded, parameter));
  std::vector<Location> locations;
  const auto& slices = e.layout.slices[e.layout.home(parameter).update];
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const TaskId task = e.where.instance_task(updater, i);
    locations.push_back({slices[i].device, {task, BufferId()}});
  }
  return locations;
}

}  // namespace

void pull_parameters(Emission& e) {
  for (TensorId parameter : e.problem.graph->parameters()) {
    if (e.layout.home_of[parameter] == decide::Layout::kNoHome) continue;
    const OpId updater = e.problem.folded->updater[parameter];
    const decide::ParameterHome& home = e.layout.home(parameter);
    if (updater.valid() && home.partitioned()) pull_parts(e, parameter);
    if (!updater.valid() || !home.server.valid()) continue;
    const Location made{home.server, {e.where.instance_task(updater, 0), BufferId()}};
    for (const decide::Speaker& speaker :
         decide::speakers(*e.problem.cluster, home.replicas, home.server)) {
      const Location pulled = pull(e, parameter, updater, made, speaker.device);
      for (DeviceId other : speaker.others) pull(e, parameter, updater, pulled, other);
    }
  }
}

void average_buffers(Emission& e) {
  const graph::ModelGraph& graph = *e.problem.graph;
  std::map<decide::LayoutId, Bucket> by_layout;
  for (OpId op : e.problem.folded->ops) {
    if (graph.op(op).phase == Phase::kUpdate) continue;
    if (e.layout.op_slices(op).size() == 1) continue;
    for (TensorId out : graph.outputs(op)) {
      if (!out.valid() || !graph.tensor(out).replaces.valid()) continue;
      const SplitKind kind = e.problem.splits->rules[out].kind;
      if (kind != SplitKind::kMean && kind != SplitKind::kSum) continue;
      Bucket& bucket = by_layout[e.layout.of_op[op]];
      bucket.values.push_back(
          {out, e.where.instances(out, op), may_be_overwritten(e.problem, out)});
      bucket.bytes += graph.bytes(out, e.problem.batch);
    }
  }
  for (const auto& [layout_id, bucket] : by_layout) all_reduce_bucket(e, bucket);
}

void pull_buffers(Emission& e) {
  const graph::ModelGraph& graph = *e.problem.graph;
  for (TensorId next : e.problem.folded->read_elsewhere) {
    const TensorId old = graph.tensor(next).replaces;
    const auto made = replaced(e, next);
    if (made.empty()) continue;
    const std::vector<DeviceId> keepers = e.where.keepers(old);
    for (std::size_t i = 0; i < keepers.size(); ++i) {
      if (find_location(made, keepers[i], i)) continue;
      pull(e, old, graph.tensor(next).producer, made.front(), keepers[i]);
    }
  }
}

}  // namespace heterog::compiler
