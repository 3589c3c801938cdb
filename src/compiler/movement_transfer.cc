// Transfers between two devices, sums on one, and collectives.
#include <algorithm>
#include <cmath>

#include "compiler/movement.h"

namespace heterog::compiler {

Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class) {
  const double rate = type.memory_bytes_per_second * type.efficiency[static_cast<int>(op_class)];
  return to_nanoseconds(type.launch_seconds + static_cast<double>(bytes) * (operands + 1) / rate);
}

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
  const bool as_rows = spec.encoding == Encoding::kRows;
  builder_.carry(id, {spec.tensor, spec.weighted});
  builder_.contribute(id, {.device = spec.source,
                           .buffer = from.buffer,
                           .encoding = spec.encoding,
                           .begin = as_rows ? 0 : spec.begin,
                           .end = as_rows ? spec.rows : spec.end,
                           .weight = spec.weight});
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
  reduced_tensors_.push_back(tensor);
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

TaskId Movement::add_collective(TensorId tensor, const std::vector<DeviceId>& devices,
                                const cost::CollectiveCost& cost, Bytes bytes, TaskKind kind) {
  PlanBuilder::Task task;
  task.kind = kind;
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
  return id;
}

std::vector<Movement::Location> Movement::all_reduce(TensorId tensor,
                                                     std::span<const Location> locations,
                                                     Bytes bytes, InPlace in_place) {
  std::vector<DeviceId> devices;
  for (const Location& location : locations) devices.push_back(location.device);
  std::sort(devices.begin(), devices.end());
  const TaskId id = add_collective(tensor, devices, collective(devices, bytes), bytes);
  builder_.carry(id, {tensor, is_mean(tensor)});
  const OpId producer = graph_.tensor(tensor).producer;
  for (DeviceId device : devices) {
    const auto at = std::find_if(locations.begin(), locations.end(),
                                 [&](const Location& one) { return one.device == device; });
    const auto instance = static_cast<std::size_t>(at - locations.begin());
    builder_.contribute(
        id, {.device = device, .end = problem_.batch, .weight = share(producer, instance)});
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
  const bool weighted = is_mean(tensor);
  std::vector<Contribution> arrived;
  std::vector<Source> addends;
  const Location* local = nullptr;
  double local_share = 1;
  for (std::size_t i = 0; i < locations.size(); ++i) {
    const Location& location = locations[i];
    if (location.device == root) {
      local = &location;
      local_share = share(producer, i);
      continue;
    }
    addends.push_back(transfer({.kind = transfer_kind,
                                .op = producer,
                                .tensor = tensor,
                                .source = location.device,
                                .destination = root,
                                .end = problem_.batch,
                                .bytes = bytes,
                                .bytes_at_destination = bytes,
                                .weighted = weighted,
                                .weight = share(producer, i)},
                               location.source));
    arrived.push_back(
        {.device = location.device, .buffer = addends.back().buffer, .end = problem_.batch});
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
  builder_.carry(id, {tensor, weighted});
  if (local) {
    builder_.contribute(id, {.device = root,
                             .buffer = local->source.buffer,
                             .end = problem_.batch,
                             .weight = local_share});
  }
  for (const Contribution& one : arrived) builder_.contribute(id, one);
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

}  // namespace heterog::compiler
