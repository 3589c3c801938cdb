// Transfers hold the links of their route.
#include "compiler/emit/transfers.h"

#include <algorithm>
#include <array>

#include "compiler/emit/compress.h"

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

std::int64_t elements_of(const Emission& e, const Transfer& spec) {
  return spec.bytes / graph::element_bytes(e.problem.graph->tensor(spec.tensor).dtype);
}

Bytes moved_bytes(const Emission& e, const Transfer& spec) {
  if (!spec.compression.any()) return spec.bytes;
  const graph::DType dtype = e.problem.graph->tensor(spec.tensor).dtype;
  return cost::cast_bytes(spec.compression, elements_of(e, spec), graph::element_bytes(dtype));
}

// The cast at the one end, and the cast back at the other.
Nanoseconds cast_duration(const Emission& e, const Transfer& spec) {
  if (!spec.compression.any()) return 0;
  const graph::DType dtype = e.problem.graph->tensor(spec.tensor).dtype;
  const std::array ends = {spec.source, spec.destination};
  return slowest_compression(
      e, ends,
      cost::cast_work(spec.compression, elements_of(e, spec), graph::element_bytes(dtype)));
}

// While it is on its way, the cast value lies at both ends; what was lost stays at the source.
void hold_cast(Emission& e, const Transfer& spec, TaskId id) {
  if (!spec.compression.any()) return;
  for (DeviceId end : {spec.source, spec.destination}) {
    e.builder.allocate_scratch(id, end, e.builder.plan().moved_bytes[id], spec.tensor);
  }
  if (spec.compression.feedback) keep_compression_state(e, spec.source, spec.bytes);
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
  task.moved_bytes = moved_bytes(e, spec);
  const cost::TransferUse use =
      spec.kind == TaskKind::kTransfer ? cost::TransferUse::kValue : cost::TransferUse::kServer;
  task.duration =
      cost::transfer_duration(cluster, route, task.moved_bytes, use) + cast_duration(e, spec);
  const TaskId id = e.builder.add_task(task);
  for (LinkId link : route.links) {
    e.builder.hold(
        id, {e.builder.plan().link(link),
             cost::link_hold(cluster, route, link, task.moved_bytes, use), task.moved_bytes});
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
  e.builder.carry(id, {spec.tensor, spec.weighted, spec.compression});
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
  hold_cast(e, spec, id);
  return arrived;
}

}  // namespace heterog::compiler
