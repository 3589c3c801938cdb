// Transfers hold the links of their route.
#include "compiler/emit/transfers.h"

#include <algorithm>

namespace heterog::compiler {
namespace {

// What goes from GPU to GPU of another machine: from or to a host, the host copies it, and software
// of its own for parameter servers does.
bool moved_by_kernels(const cluster::Cluster& cluster, const Plan& plan, const Transfer& spec,
                      cost::TransferUse use) {
  if (plan.drag.empty() || cluster.same_machine(spec.source, spec.destination)) return false;
  const cluster::Route& route = cluster.route(spec.source, spec.destination);
  if (use == cost::TransferUse::kServer && route.server_bytes_per_second > 0) return false;
  return plan.drag[spec.source].transfer > 0 && plan.drag[spec.destination].transfer > 0;
}

}  // namespace

Source transfer(Emission& e, const Transfer& spec, const Source& from) {
  if (e.symmetry) {
    e.moves = true;
    return from;
  }
  const cluster::Cluster& cluster = *e.problem.cluster;
  const cluster::Route& route = cluster.route(spec.source, spec.destination);
  PlanBuilder::Task task;
  task.kind = spec.kind;
  task.op = spec.op;
  task.tensor = spec.tensor;
  task.device = spec.destination;
  task.peer = spec.source;
  task.begin = spec.begin;
  task.end = spec.end;
  task.moved_bytes = spec.bytes;
  const cost::TransferUse use =
      spec.kind == TaskKind::kTransfer ? cost::TransferUse::kValue : cost::TransferUse::kServer;
  task.duration = cost::transfer_duration(cluster, route, spec.bytes, use);
  const TaskId id = e.builder.add_task(task);
  for (LinkId link : route.links) {
    e.builder.hold(id, {e.builder.plan().link(link),
                        cost::link_hold(cluster, route, link, spec.bytes, use), spec.bytes});
  }
  if (moved_by_kernels(cluster, e.builder.plan(), spec, use)) {
    e.builder.participate(id, std::min(spec.source, spec.destination));
    e.builder.participate(id, std::max(spec.source, spec.destination));
  }
  if (from.task.valid()) {
    e.builder.depend(from.task, id);
  } else {
    e.where.note_reader(e.problem.graph->root(spec.tensor), spec.source, id);
  }
  e.builder.read(id, from.buffer);
  const bool as_rows = spec.encoding != Encoding::kDense;
  e.builder.carry(id, {spec.tensor, spec.weighted});
  e.builder.contribute(id, {.device = spec.source,
                            .buffer = from.buffer,
                            .encoding = spec.encoding,
                            .begin = as_rows ? spec.first_row : spec.begin,
                            .end = as_rows ? spec.first_row + spec.rows : spec.end,
                            .weight = spec.weight});
  Source arrived{id, BufferId()};
  if (spec.bytes_at_destination > 0) {
    arrived.buffer =
        e.builder.allocate(id, spec.destination, spec.bytes_at_destination, spec.tensor);
  }
  return arrived;
}

}  // namespace heterog::compiler
