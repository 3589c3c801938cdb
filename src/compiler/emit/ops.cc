// Tasks of one op follow one another, and so do their buffers: what all instances read is brought
// first.
#include "compiler/emit/ops.h"

#include <algorithm>
#include <span>
#include <utility>

#include "compiler/emit/fetch.h"
#include "compiler/emit/gather_frozen.h"

namespace heterog::compiler {

using graph::OperandUse;
using graph::SplitKind;
using graph::TensorRole;

void fetch_all(Emission& e, OpId op, decide::LayoutId layout, std::span<const graph::Read> reads) {
  const std::size_t instances = e.layout.slices[layout].size();
  if (e.sources.size() < instances) e.sources.resize(instances);
  for (std::size_t i = 0; i < instances; ++i) {
    e.sources[i].clear();
    for (const graph::Read& read : reads) fetch(e, {op, layout, i}, read, e.sources[i]);
  }
}

void read_all(Emission& e, TaskId task, std::size_t instance) {
  for (const Source& source : e.sources[instance]) {
    if (source.task.valid()) e.builder.depend(source.task, task);
    e.builder.read(task, source.buffer);
  }
}

void replace(Emission& e, TensorId tensor, DeviceId device, Bytes bytes, TaskId writer) {
  wait_for_readers(e, tensor, device, writer);
  e.where.keep(tensor, device, bytes);
}

namespace {

// Whether each read of each instance i is what instance i of its producer made, or was there before
// the step: what most ops do. Then `e.direct` has what is read, and nothing needs to be fetched.
bool reads_directly(Emission& e, decide::LayoutId layout, std::span<const graph::Read> reads) {
  e.direct.clear();
  for (const graph::Read& read : reads) {
    if (!read.producer.valid()) {
      if (e.frozen.has(read.base)) return false;
      if (e.problem.graph->tensor(read.base).role == TensorRole::kParameter) {
        for (const decide::Slice& slice : e.layout.slices[layout]) {
          if (e.where.resident(read.base, slice.device) == 0) return false;
        }
      }
      continue;
    }
    const bool adds_up =
        (read.rule.kind == SplitKind::kSum || read.rule.kind == SplitKind::kMean) &&
        read.use != OperandUse::kPartial;
    if (layout != e.layout.of_op[read.producer] || adds_up || read.use == OperandUse::kOnce ||
        e.where.total(read.base)) {
      return false;
    }
    e.direct.push_back(e.where.made(read.base, read.producer));
  }
  return true;
}

void read_direct(Emission& e, TaskId task, std::size_t instance) {
  for (const Made& made : e.direct) {
    const Source source = made.of(instance);
    e.builder.depend(source.task, task);
    e.builder.read(task, source.buffer);
  }
}

void allocate_outputs(Emission& e, OpId op, std::size_t instance, TaskId task,
                      const decide::Slice& slice, const Again& again) {
  const graph::ModelGraph& graph = *e.problem.graph;
  for (TensorId out : graph.outputs(op)) {
    if (!out.valid()) continue;
    const Bytes bytes = graph.bytes(out, slice.size());
    if (graph.tensor(out).replaces.valid()) {
      replace(e, graph.tensor(out).replaces, slice.device, bytes, task);
      continue;
    }
    const BufferId buffer = e.builder.allocate(task, slice.device, bytes, out);
    if (instance != 0) continue;
    if (again.unit.valid()) {
      e.where.made_buffer_again(out, buffer);
    } else {
      e.where.made_buffer(op, out, buffer);
    }
  }
}

void wait_for_gate(Emission& e, TaskId task, const decide::Slice& slice, OpId gate) {
  const auto slices = e.layout.op_slices(gate);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].begin < slice.end && slice.begin < slices[i].end) {
      e.builder.depend(e.where.instance_task(gate, i), task);
    }
  }
}

}  // namespace

TaskId emit_op(Emission& e, OpId op, const Again& again) {
  const decide::LayoutId layout = e.layout.of_op[op];
  const auto reads = e.problem.folded->reads[op];
  e.frozen.pass = again.unit.valid() || e.problem.graph->op(op).phase == graph::Phase::kBackward
                      ? decide::Pass::kBackward
                      : decide::Pass::kForward;
  const bool direct = reads_directly(e, layout, reads);
  if (!direct) fetch_all(e, op, layout, reads);
  const bool alias = e.problem.graph->op(op).alias;
  const auto& slices = e.layout.slices[layout];
  PlanBuilder::Task task;
  task.kind = TaskKind::kCompute;
  task.op = op;
  DeviceTypeId last_type;
  TaskId first;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const decide::Slice& slice = slices[i];
    const DeviceTypeId type = e.type_id(slice.device);
    // Neighbours are mostly alike: what the one before costs is not looked up again.
    if (!alias && (type != last_type || slice.size() != task.end - task.begin)) {
      task.duration = e.problem.costs.duration(op, type, slice.size());
      task.workspace = e.problem.costs.workspace_bytes(op, type, slice.size());
    }
    last_type = type;
    task.device = slice.device;
    task.begin = slice.begin;
    task.end = slice.end;
    const TaskId id = e.builder.add_task(task);
    if (i == 0) {
      first = id;
      if (again.unit.valid()) {
        e.where.ran_again(op, id, again.unit);
      } else {
        e.where.ran(op, id);
      }
    }
    if (again.gate.valid()) wait_for_gate(e, id, slice, again.gate);
    e.builder.hold(id, {e.builder.plan().compute_stream(slice.device), task.duration});
    if (direct) {
      read_direct(e, id, i);
    } else {
      read_all(e, id, i);
    }
    for (const graph::Read& read : reads) {
      if (read.producer.valid() || (read.use == OperandUse::kOnce && i != 0)) continue;
      if (direct) keep_external(e, read.base, layout, slice.device);
      if (e.frozen.has(read.base)) note_frozen_reader(e, {op, layout, i}, read.base, id);
      e.where.note_reader(read.base, slice.device, id);
    }
    allocate_outputs(e, op, i, id, slice, again);
  }
  return first;
}

}  // namespace heterog::compiler
