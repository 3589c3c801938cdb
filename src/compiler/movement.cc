// Emission of compute and update tasks, and where everything is meanwhile.
#include "compiler/movement.h"

#include <algorithm>

namespace heterog::compiler {

using graph::TensorRole;

Movement::Movement(const cost::Problem& problem, const Layout& layout,
                   const CompileOptions& options, PlanBuilder& builder)
    : problem_(problem),
      graph_(*problem.graph),
      layout_(layout),
      options_(options),
      builder_(builder),
      devices_(problem.cluster->device_count()),
      instance_on_(layout.slices.size() * devices_, kNone),
      first_task_(graph_.op_count()),
      first_buffer_(graph_.tensor_count()),
      buffers_per_instance_(graph_.op_count(), 0),
      pieces_at_(graph_.tensor_count() * devices_, kNone),
      reduced_(graph_.tensor_count(), kNone),
      readers_at_(graph_.tensor_count() * devices_, kNone),
      resident_(graph_.tensor_count() * devices_, 0) {
  for (LayoutId id : id_range<LayoutId>(layout.slices.size())) {
    const auto& slices = layout.slices[id];
    for (std::size_t i = 0; i < slices.size(); ++i) {
      instance_on_[id.value() * devices_ + slices[i].device.value()] =
          static_cast<std::uint32_t>(i);
    }
  }
  for (TensorId parameter : graph_.parameters()) {
    if (layout.home_of[parameter] == Layout::kNoHome) continue;
    for (DeviceId device : layout.home(parameter).replicas) {
      resident_[cell(parameter, device)] = graph_.bytes(parameter, 1);
    }
  }
}

// What the instances read is brought first, so that their tasks and buffers follow one another.
void Movement::fetch_all(OpId op, LayoutId layout, std::span<const graph::Read> reads) {
  const std::size_t instances = layout_.slices[layout].size();
  if (sources_.size() < instances) sources_.resize(instances);
  for (std::size_t i = 0; i < instances; ++i) {
    sources_[i].clear();
    for (const graph::Read& read : reads) fetch({op, layout, i}, read, sources_[i]);
  }
}

void Movement::read_all(TaskId task, std::size_t instance) {
  for (const Source& source : sources_[instance]) {
    if (source.task.valid()) builder_.depend(source.task, task);
    builder_.read(task, source.buffer);
  }
}

bool Movement::reads_directly(LayoutId layout, std::span<const graph::Read> reads) {
  direct_.clear();
  for (const graph::Read& read : reads) {
    if (!read.producer.valid()) {
      if (graph_.tensor(read.base).role == TensorRole::kParameter) {
        for (const Slice& slice : layout_.slices[layout]) {
          if (resident_[cell(read.base, slice.device)] == 0) return false;
        }
      }
      continue;
    }
    const bool reduces =
        (read.rule.kind == graph::SplitKind::kSum || read.rule.kind == graph::SplitKind::kMean) &&
        read.use != graph::OperandUse::kPartial;
    if (layout != layout_.of_op[read.producer] || reduces || read.use == graph::OperandUse::kOnce ||
        is_reduced(read.base)) {
      return false;
    }
    direct_.push_back({first_task_[read.producer], first_buffer_[read.base],
                       buffers_per_instance_[read.producer]});
  }
  return true;
}

void Movement::read_direct(TaskId task, std::size_t instance) {
  for (const Direct& from : direct_) {
    builder_.depend(TaskId(from.first_task.value() + instance), task);
    if (!from.first_buffer.valid()) continue;
    builder_.read(task, BufferId(from.first_buffer.value() + instance * from.buffers_per_instance));
  }
}

void Movement::run(OpId op) {
  const LayoutId layout = layout_.of_op[op];
  const auto reads = problem_.folded->reads[op];
  const bool direct = reads_directly(layout, reads);
  if (!direct) fetch_all(op, layout, reads);
  const bool alias = graph_.op(op).alias;
  const auto& slices = layout_.slices[layout];
  PlanBuilder::Task task;
  task.kind = TaskKind::kCompute;
  task.op = op;
  DeviceTypeId last_type;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    const DeviceTypeId type = problem_.cluster->device(slice.device).type;
    // Neighbours are mostly alike: what the one before costs is not looked up again.
    if (!alias && (type != last_type || slice.size() != task.end - task.begin)) {
      task.duration = problem_.costs.duration(op, type, slice.size());
      task.workspace = problem_.costs.workspace_bytes(op, type, slice.size());
    }
    last_type = type;
    task.device = slice.device;
    task.begin = slice.begin;
    task.end = slice.end;
    const TaskId id = builder_.add_task(task);
    if (i == 0) first_task_[op] = id;
    builder_.hold(id, {builder_.plan().compute_stream(slice.device), task.duration});
    if (direct) {
      read_direct(id, i);
    } else {
      read_all(id, i);
    }
    for (const graph::Read& read : reads) {
      if (read.producer.valid() || (read.use == graph::OperandUse::kOnce && i != 0)) continue;
      if (direct) keep_external(read.base, slice);
      note_reader(read.base, slice.device, id);
    }
    allocate_outputs(op, i, id, slice);
  }
}

void Movement::update(const graph::UpdateChain& chain) {
  if (layout_.home_of[chain.parameter] == Layout::kNoHome) return;
  const LayoutId layout = layout_.home(chain.parameter).update;
  const OpId updater = update_op(problem_, chain);
  fetch_all(updater, layout, chain.reads);
  const auto& slices = layout_.slices[layout];
  PlanBuilder::Task task;
  task.kind = TaskKind::kUpdate;
  task.op = updater;
  task.tensor = chain.parameter;
  task.end = problem_.batch;
  task.workspace = chain.temporary_bytes;
  std::vector<std::pair<TensorId, Bytes>> replaced;
  for (OpId op : chain.ops) {
    for (TensorId out : graph_.outputs(op)) {
      if (!out.valid() || !graph_.tensor(out).replaces.valid()) continue;
      replaced.emplace_back(graph_.tensor(out).replaces, graph_.bytes(out, problem_.batch));
    }
  }
  // What the chain replaces itself need not wait for it.
  std::vector<TensorId> noted;
  for (const graph::Read& read : chain.reads) {
    const bool is_own = std::any_of(replaced.begin(), replaced.end(),
                                    [&](const auto& own) { return own.first == read.base; });
    if (!read.producer.valid() && !is_own) noted.push_back(read.base);
  }
  DeviceTypeId last_type;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const DeviceId device = slices[i].device;
    const DeviceTypeId type = problem_.cluster->device(device).type;
    if (type != last_type) {
      task.duration = 0;
      for (OpId op : chain.ops) task.duration += problem_.costs.duration(op, type, problem_.batch);
    }
    last_type = type;
    task.device = device;
    const TaskId id = builder_.add_task(task);
    if (i == 0) first_task_[updater] = id;
    builder_.hold(id, {builder_.plan().compute_stream(device), task.duration});
    read_all(id, i);
    for (TensorId tensor : noted) note_reader(tensor, device, id);
    for (const auto& [tensor, bytes] : replaced) replace(tensor, device, bytes, id);
  }
}

// Written in place, after everyone who reads the old value.
void Movement::replace(TensorId tensor, DeviceId device, Bytes bytes, TaskId writer) {
  wait_for_readers(tensor, device, writer);
  keep(cell(tensor, device), bytes);
}

void Movement::keep(std::size_t cell, Bytes bytes) {
  resident_[cell] = std::max(resident_[cell], bytes);
  kept_.push_back({cell, bytes});
}

void Movement::allocate_outputs(OpId op, std::size_t instance, TaskId task, const Slice& slice) {
  for (TensorId out : graph_.outputs(op)) {
    if (!out.valid()) continue;
    const Bytes bytes = graph_.bytes(out, slice.size());
    if (graph_.tensor(out).replaces.valid()) {
      replace(graph_.tensor(out).replaces, slice.device, bytes, task);
      continue;
    }
    const BufferId buffer = builder_.allocate(task, slice.device, bytes, out);
    if (instance == 0) {
      first_buffer_[out] = buffer;
      ++buffers_per_instance_[op];
    }
  }
}

Source Movement::instance_source(TensorId base, OpId producer, std::size_t instance) const {
  Source source;
  source.task = instance_task(producer, instance);
  if (first_buffer_[base].valid()) {
    source.buffer =
        BufferId(first_buffer_[base].value() + instance * buffers_per_instance_[producer]);
  }
  return source;
}

std::vector<Movement::Location> Movement::instances(TensorId base, OpId producer) const {
  std::vector<Location> locations;
  const auto slices = layout_.op_slices(producer);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    locations.push_back({slices[i].device, instance_source(base, producer, i)});
  }
  return locations;
}

// Only values that the step replaces need their readers known.
void Movement::note_reader(TensorId tensor, DeviceId device, TaskId reader) {
  if (!problem_.folded->updater[tensor].valid()) return;
  add_reader(cell(tensor, device), reader);
}

void Movement::add_reader(std::size_t cell, TaskId reader) {
  std::uint32_t& head = readers_at_[cell];
  readers_.push_back({reader, head, cell});
  head = static_cast<std::uint32_t>(readers_.size() - 1);
}

void Movement::wait_for_readers(TensorId tensor, DeviceId device, TaskId writer) {
  for (std::uint32_t at = readers_at_[cell(tensor, device)]; at != kNone; at = readers_[at].next) {
    if (readers_[at].task != writer) builder_.depend(readers_[at].task, writer);
  }
}

std::vector<DeviceId> Movement::keepers(TensorId tensor) const {
  std::vector<DeviceId> devices;
  for (DeviceId device : problem_.cluster->device_ids()) {
    if (resident_[cell(tensor, device)] > 0) devices.push_back(device);
  }
  return devices;
}

std::vector<Movement::Location> Movement::replaced(TensorId next) const {
  if (is_reduced(next)) return reduced_locations_[reduced_[next]];
  const OpId maker = graph_.tensor(next).producer;
  if (layout_.of_op[maker].valid()) return instances(next, maker);
  const TensorId parameter = problem_.folded->home[maker];
  if (layout_.home_of[parameter] == Layout::kNoHome) return {};
  const auto& chains = problem_.folded->chains;
  const auto chain = std::find_if(chains.begin(), chains.end(),
                                  [&](const auto& one) { return one.parameter == parameter; });
  ENSURE(chain != chains.end());
  std::vector<Location> locations;
  const auto& slices = layout_.slices[layout_.home(parameter).update];
  for (std::size_t i = 0; i < slices.size(); ++i) {
    locations.push_back(
        {slices[i].device, {instance_task(update_op(problem_, *chain), i), BufferId()}});
  }
  return locations;
}

void Movement::add_static_memory(Plan& plan) const {
  for (TensorId tensor : graph_.tensor_ids()) {
    const TensorRole role = graph_.tensor(tensor).role;
    if (graph_.tensor(tensor).producer.valid()) continue;
    for (DeviceId device : problem_.cluster->device_ids()) {
      StaticMemory& memory = plan.static_memory[device];
      const Bytes bytes = resident_[cell(tensor, device)];
      if (role == TensorRole::kParameter) {
        memory.parameters += bytes;
      } else if (role == TensorRole::kOptimizerState) {
        memory.optimizer_state += bytes;
      } else {
        memory.buffers += bytes;
      }
    }
  }
}

}  // namespace heterog::compiler
