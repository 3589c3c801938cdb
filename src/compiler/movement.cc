// Emission of compute tasks and of the data movement in front of them.
#include "compiler/movement.h"

#include <algorithm>
#include <cmath>

namespace heterog::compiler {

using graph::OperandUse;
using graph::SplitKind;
using graph::TensorRole;

Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class) {
  const double rate = type.memory_bytes_per_second * type.efficiency[static_cast<int>(op_class)];
  return to_nanoseconds(type.launch_seconds + static_cast<double>(bytes) * (operands + 1) / rate);
}

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

// ---- compute tasks ----

// What the instances read is brought first, so that their tasks and buffers follow one another.
void Movement::fetch_all(OpId op, LayoutId layout, std::span<const graph::Read> reads) {
  const std::size_t instances = layout_.slices[layout].size();
  if (sources_.size() < instances) sources_.resize(instances);
  for (std::size_t i = 0; i < instances; ++i) {
    sources_[i].clear();
    for (const graph::Read& read : reads) fetch({op, layout, i}, read, sources_[i]);
  }
}

void Movement::read_all(TaskId task, std::size_t instance, DeviceId device,
                        std::span<const graph::Read> reads) {
  for (const Source& source : sources_[instance]) {
    if (source.task.valid()) builder_.depend(source.task, task);
    builder_.read(task, source.buffer);
  }
  for (const graph::Read& read : reads) {
    if (!read.producer.valid()) note_reader(read.base, device, task);
  }
}

void Movement::run(OpId op) {
  const LayoutId layout = layout_.of_op[op];
  const auto reads = problem_.folded->reads[op];
  fetch_all(op, layout, reads);
  const bool alias = graph_.op(op).alias;
  const auto& slices = layout_.slices[layout];
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    const DeviceTypeId type = problem_.cluster->device(slice.device).type;
    PlanBuilder::Task task;
    task.kind = TaskKind::kCompute;
    task.op = op;
    task.device = slice.device;
    task.begin = slice.begin;
    task.end = slice.end;
    task.duration = alias ? 0 : problem_.costs.duration(op, type, slice.size());
    task.workspace = alias ? 0 : problem_.costs.workspace_bytes(op, type, slice.size());
    const TaskId id = builder_.add_task(task);
    if (i == 0) first_task_[op] = id;
    builder_.hold(id, {builder_.plan().compute_stream(slice.device), task.duration});
    read_all(id, i, slice.device, reads);
    allocate_outputs(op, i, id, slice);
  }
}

void Movement::update(const graph::UpdateChain& chain) {
  if (layout_.home_of[chain.parameter] == Layout::kNoHome) return;
  const LayoutId layout = layout_.home(chain.parameter).update;
  const OpId updater = problem_.folded->updater[chain.parameter].valid()
                           ? problem_.folded->updater[chain.parameter]
                           : chain.ops.back();
  fetch_all(updater, layout, chain.reads);
  const auto& slices = layout_.slices[layout];
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const DeviceId device = slices[i].device;
    PlanBuilder::Task task;
    task.kind = TaskKind::kUpdate;
    task.op = updater;
    task.tensor = chain.parameter;
    task.device = device;
    task.end = problem_.batch;
    task.workspace = chain.temporary_bytes;
    for (OpId op : chain.ops) {
      task.duration +=
          problem_.costs.duration(op, problem_.cluster->device(device).type, problem_.batch);
    }
    const TaskId id = builder_.add_task(task);
    if (i == 0) first_task_[updater] = id;
    builder_.hold(id, {builder_.plan().compute_stream(device), task.duration});
    read_all(id, i, device, chain.reads);
    for (OpId op : chain.ops) {
      for (TensorId out : graph_.outputs(op)) {
        if (!out.valid() || !graph_.tensor(out).replaces.valid()) continue;
        replace(graph_.tensor(out).replaces, device, graph_.bytes(out, problem_.batch), id);
      }
    }
  }
}

// Written in place, after everyone who reads the old value.
void Movement::replace(TensorId tensor, DeviceId device, Bytes bytes, TaskId writer) {
  wait_for_readers(tensor, device, writer);
  Bytes& resident = resident_[cell(tensor, device)];
  resident = std::max(resident, bytes);
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
  std::uint32_t& head = readers_at_[cell(tensor, device)];
  readers_.push_back({reader, head});
  head = static_cast<std::uint32_t>(readers_.size() - 1);
}

void Movement::wait_for_readers(TensorId tensor, DeviceId device, TaskId writer) {
  for (std::uint32_t at = readers_at_[cell(tensor, device)]; at != kNone; at = readers_[at].next) {
    if (readers_[at].task != writer) builder_.depend(readers_[at].task, writer);
  }
}

// ---- what an op reads ----

// The value is a row of samples, of which a slice is wanted.
bool Movement::holds_samples(const graph::Read& read) const {
  return read.rule.kind == SplitKind::kConcat ||
         (read.rule.kind == SplitKind::kWhole && graph_.tensor(read.tensor).has_batch);
}

void Movement::fetch(const Reader& reader, const graph::Read& read, std::vector<Source>& sources) {
  const Slice& slice = layout_.slices[reader.layout][reader.instance];
  if (read.use == OperandUse::kOnce && reader.instance != 0) return;
  if (!read.producer.valid()) {
    fetch_external(read, reader.op, slice, sources);
    return;
  }
  const bool same_layout = reader.layout == layout_.of_op[read.producer];
  switch (read.rule.kind) {
    case SplitKind::kLocal:
      ENSURE(same_layout);
      sources.push_back(instance_source(read.base, read.producer, reader.instance));
      return;
    case SplitKind::kSum:
    case SplitKind::kMean:
      if (read.use == OperandUse::kPartial) {
        if (same_layout) {
          sources.push_back(instance_source(read.base, read.producer, reader.instance));
          return;
        }
        // Partial sums over other slices: their total is an addend of the first instance.
        if (reader.instance != 0) return;
      }
      reduce(read, reader.layout);
      break;
    case SplitKind::kConcat:
    case SplitKind::kWhole:
      if (holds_samples(read)) {
        fetch_slice(read, slice, sources);
        return;
      }
      break;
    case SplitKind::kSame:
      break;
  }
  const DeviceId device = slice.device;
  if (is_reduced(read.base)) {
    fetch_same(read.tensor, reader.op, reduced_locations_[reduced_[read.base]], device, sources);
    return;
  }
  const std::uint32_t here = instance_on(layout_.of_op[read.producer], device);
  if (here != kNone) {
    sources.push_back(instance_source(read.base, read.producer, here));
  } else {
    fetch_same(read.tensor, reader.op, instances(read.base, read.producer), device, sources);
  }
}

// The whole value from wherever it is, or from an earlier fetch.
void Movement::fetch_same(TensorId tensor, OpId reader, std::span<const Location> locations,
                          DeviceId device, std::vector<Source>& sources) {
  for (const Location& location : locations) {
    if (location.device == device) {
      sources.push_back(location.source);
      return;
    }
  }
  const std::uint32_t known = pieces_at_[cell(tensor, device)];
  if (known != kNone) {
    sources.push_back(pieces_[known].source);
    return;
  }
  const Bytes bytes = graph_.bytes(tensor, problem_.batch);
  const Location* best = nullptr;
  Nanoseconds best_duration = 0;
  for (const Location& location : locations) {
    const Nanoseconds duration = cost::transfer_duration(
        *problem_.cluster, problem_.cluster->route(location.device, device), bytes);
    if (!best || duration < best_duration ||
        (duration == best_duration && location.device < best->device)) {
      best = &location;
      best_duration = duration;
    }
  }
  const Source arrived = transfer(
      {TaskKind::kTransfer, reader, tensor, best->device, device, 0, problem_.batch, bytes, bytes},
      best->source);
  add_piece(tensor, device, 0, problem_.batch, arrived);
  sources.push_back(arrived);
}

// Inputs and buffers are wherever they are read; parameters and optimizer state at their homes.
void Movement::fetch_external(const graph::Read& read, OpId op, const Slice& slice,
                              std::vector<Source>& sources) {
  const graph::Tensor& tensor = graph_.tensor(read.base);
  Bytes& resident = resident_[cell(read.base, slice.device)];
  if (tensor.role == TensorRole::kParameter && resident == 0 &&
      layout_.home_of[read.base] != Layout::kNoHome) {
    std::vector<Location> replicas;
    for (DeviceId device : layout_.home(read.base).replicas) replicas.push_back({device, {}});
    fetch_same(read.tensor, op, replicas, slice.device, sources);
    return;
  }
  resident = std::max(resident, graph_.bytes(read.base, slice.size()));
}

// ---- slices of the batch ----

void Movement::add_piece(TensorId tensor, DeviceId device, std::int64_t begin, std::int64_t end,
                         const Source& source) {
  std::uint32_t& head = pieces_at_[cell(tensor, device)];
  pieces_.push_back({begin, end, source, head});
  head = static_cast<std::uint32_t>(pieces_.size() - 1);
}

void Movement::fetch_slice(const graph::Read& read, const Slice& slice,
                           std::vector<Source>& sources) {
  const LayoutId from = layout_.of_op[read.producer];
  const std::uint32_t here = instance_on(from, slice.device);
  if (here != kNone) {
    const Slice& local = layout_.slices[from][here];
    if (local.begin <= slice.begin && slice.end <= local.end) {
      sources.push_back(instance_source(read.base, read.producer, here));
      return;
    }
  }
  for (std::uint32_t at = pieces_at_[cell(read.tensor, slice.device)]; at != kNone;
       at = pieces_[at].next) {
    if (pieces_[at].begin <= slice.begin && slice.end <= pieces_[at].end) {
      sources.push_back(pieces_[at].source);
      return;
    }
  }
  std::vector<Piece> pieces;
  fetch_missing(read, slice, pieces);
  if (pieces.size() == 1) {
    sources.push_back(pieces.front().source);
    return;
  }
  const Source merged = merge(read.tensor, slice, pieces);
  add_piece(read.tensor, slice.device, slice.begin, slice.end, merged);
  sources.push_back(merged);
}

// A cover of the slice by what the device holds and, where it holds nothing, by new transfers
// (decision 2). Greedy: of the pieces that hold the next sample, the one that reaches farthest.
void Movement::fetch_missing(const graph::Read& read, const Slice& slice,
                             std::vector<Piece>& pieces) {
  const LayoutId from = layout_.of_op[read.producer];
  const auto& produced = layout_.slices[from];
  std::vector<Piece> held;
  const std::uint32_t here = instance_on(from, slice.device);
  if (here != kNone) {
    held.push_back({produced[here].begin, produced[here].end,
                    instance_source(read.base, read.producer, here)});
  }
  for (std::uint32_t at = pieces_at_[cell(read.tensor, slice.device)]; at != kNone;
       at = pieces_[at].next) {
    held.push_back(pieces_[at]);
  }
  std::int64_t at = slice.begin;
  while (at < slice.end) {
    const Piece* best = nullptr;
    std::int64_t next_held = slice.end;
    for (const Piece& piece : held) {
      if (piece.begin > at) next_held = std::min(next_held, piece.begin);
      if (piece.begin > at || piece.end <= at) continue;
      if (!best || piece.end > best->end) best = &piece;
    }
    if (best) {
      pieces.push_back(*best);
      at = best->end;
      continue;
    }
    const auto producer = std::find_if(produced.begin(), produced.end(),
                                       [&](const Slice& s) { return s.begin <= at && at < s.end; });
    ENSURE(producer != produced.end());
    const std::int64_t end = std::min(producer->end, next_held);
    const Bytes bytes = graph_.bytes(read.tensor, end - at);
    const Source source =
        transfer({TaskKind::kTransfer, read.producer, read.tensor, producer->device, slice.device,
                  at, end, bytes, bytes},
                 instance_source(read.base, read.producer,
                                 static_cast<std::size_t>(producer - produced.begin())));
    add_piece(read.tensor, slice.device, at, end, source);
    pieces.push_back({at, end, source});
    at = end;
  }
}

Source Movement::merge(TensorId tensor, const Slice& slice, std::span<const Piece> pieces) {
  const Bytes bytes = graph_.bytes(tensor, slice.size());
  PlanBuilder::Task task;
  task.kind = TaskKind::kMerge;
  task.op = graph_.tensor(tensor).producer;
  task.tensor = tensor;
  task.device = slice.device;
  task.begin = slice.begin;
  task.end = slice.end;
  task.duration =
      combine_duration(problem_.cluster->type_of(slice.device), 1, bytes, cluster::OpClass::kCopy);
  const TaskId id = builder_.add_task(task);
  builder_.hold(id, {builder_.plan().compute_stream(slice.device), task.duration});
  for (const Piece& piece : pieces) {
    builder_.depend(piece.source.task, id);
    builder_.read(id, piece.source.buffer);
  }
  return {id, builder_.allocate(id, slice.device, bytes, tensor)};
}

// ---- transfers and reductions ----

Source Movement::transfer(const Transfer& spec, const Source& from) {
  const cluster::Route& route = problem_.cluster->route(spec.source, spec.destination);
  PlanBuilder::Task task;
  task.kind = spec.kind;
  task.op = spec.op;
  task.tensor = spec.tensor;
  task.device = spec.destination;
  task.peer = spec.source;
  task.begin = spec.begin;
  task.end = spec.end;
  task.moved_bytes = spec.bytes;
  task.duration = cost::transfer_duration(*problem_.cluster, route, spec.bytes);
  const TaskId id = builder_.add_task(task);
  for (LinkId link : route.links) {
    builder_.hold(id,
                  {builder_.plan().link(link),
                   transfer_nanoseconds(spec.bytes, problem_.cluster->link(link).bytes_per_second),
                   spec.bytes});
  }
  if (from.task.valid()) {
    builder_.depend(from.task, id);
  } else {
    note_reader(graph_.root(spec.tensor), spec.source, id);
  }
  builder_.read(id, from.buffer);
  Source arrived{id, BufferId()};
  if (spec.bytes_at_destination > 0) {
    arrived.buffer =
        builder_.allocate(id, spec.destination, spec.bytes_at_destination, spec.tensor);
  }
  return arrived;
}

void Movement::set_reduced(TensorId tensor, std::vector<Location> locations) {
  reduced_[tensor] = static_cast<std::uint32_t>(reduced_locations_.size());
  reduced_locations_.push_back(std::move(locations));
}

// A sum or mean over slices that someone reads as a whole: an all-reduce where the readers are the
// producers, else a sum on the reader's first device, from where others fetch it.
void Movement::reduce(const graph::Read& read, LayoutId readers) {
  if (is_reduced(read.base)) return;
  const auto partial = instances(read.base, read.producer);
  const Bytes bytes = graph_.bytes(read.base, problem_.batch);
  if (partial.size() == 1) {
    set_reduced(read.base, partial);
  } else if (readers == layout_.of_op[read.producer]) {
    set_reduced(read.base, all_reduce(read.base, partial, bytes, InPlace::kNo));
  } else {
    const DeviceId root = layout_.slices[readers].front().device;
    set_reduced(read.base,
                {sum_at(read.base, partial, bytes, root, TaskKind::kTransfer, InPlace::kNo)});
  }
}

// The better of ring and hierarchical; the shapes of a device set are worked out once.
cost::CollectiveCost Movement::collective(const std::vector<DeviceId>& devices, Bytes bytes) {
  using cost::AllReduceAlgorithm;
  auto [at, is_new] = shapes_.try_emplace(devices);
  if (is_new) {
    const cluster::Cluster& cluster = *problem_.cluster;
    at->second = {all_reduce_shape(cluster, devices, AllReduceAlgorithm::kRing),
                  all_reduce_shape(cluster, devices, AllReduceAlgorithm::kHierarchical)};
  }
  const auto& [ring, hierarchical] = at->second;
  return cost::collective_cost(
      hierarchical.seconds(bytes) < ring.seconds(bytes) ? hierarchical : ring, bytes);
}

std::vector<Movement::Location> Movement::all_reduce(TensorId tensor,
                                                     std::span<const Location> locations,
                                                     Bytes bytes, InPlace in_place) {
  std::vector<DeviceId> devices;
  for (const Location& location : locations) devices.push_back(location.device);
  std::sort(devices.begin(), devices.end());
  const cost::CollectiveCost cost = collective(devices, bytes);
  PlanBuilder::Task task;
  task.kind = TaskKind::kAllReduce;
  task.op = graph_.tensor(tensor).producer;
  task.tensor = tensor;
  task.device = devices.front();
  task.begin = 0;
  task.end = problem_.batch;
  task.moved_bytes = bytes;
  task.duration = cost.duration;
  const TaskId id = builder_.add_task(task);
  for (DeviceId device : devices) {
    builder_.hold(id, {builder_.plan().collective_channel(device), cost.duration});
    builder_.participate(id, device);
  }
  for (const auto& [link, held] : cost.links) {
    const double crossed = to_seconds(held) * problem_.cluster->link(link).bytes_per_second;
    builder_.hold(id, {builder_.plan().link(link), held, std::llround(crossed)});
  }
  if (options_.collectives == CompileOptions::Collectives::kSerial) {
    builder_.hold(id, {builder_.plan().all_collectives(), cost.duration});
  }
  std::vector<Location> results;
  for (const Location& location : locations) {
    builder_.depend(location.source.task, id);
    builder_.read(id, location.source.buffer);
    const BufferId buffer = in_place == InPlace::kYes
                                ? location.source.buffer
                                : builder_.allocate(id, location.device, bytes, tensor);
    results.push_back({location.device, {id, buffer}});
  }
  return results;
}

Movement::Location Movement::sum_at(TensorId tensor, std::span<const Location> locations,
                                    Bytes bytes, DeviceId root, TaskKind transfer_kind,
                                    InPlace in_place) {
  const OpId producer = graph_.tensor(tensor).producer;
  std::vector<Source> addends;
  const Location* local = nullptr;
  for (const Location& location : locations) {
    if (location.device == root) {
      local = &location;
    } else {
      addends.push_back(transfer(
          {transfer_kind, producer, tensor, location.device, root, 0, problem_.batch, bytes, bytes},
          location.source));
    }
  }
  if (addends.empty()) return *local;
  if (!local && addends.size() == 1) return {root, addends.front()};
  PlanBuilder::Task task;
  task.kind = TaskKind::kSum;
  task.op = producer;
  task.tensor = tensor;
  task.device = root;
  task.begin = 0;
  task.end = problem_.batch;
  task.duration = combine_duration(problem_.cluster->type_of(root),
                                   static_cast<int>(addends.size()) + (local ? 1 : 0), bytes,
                                   cluster::OpClass::kElementwise);
  const TaskId id = builder_.add_task(task);
  builder_.hold(id, {builder_.plan().compute_stream(root), task.duration});
  for (const Source& addend : addends) {
    builder_.depend(addend.task, id);
    builder_.read(id, addend.buffer);
  }
  if (local) {
    builder_.depend(local->source.task, id);
    builder_.read(id, local->source.buffer);
  }
  if (in_place == InPlace::kYes) {
    return {root, {id, local ? local->source.buffer : addends.front().buffer}};
  }
  return {root, {id, builder_.allocate(id, root, bytes, tensor)}};
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
