// Collectives, sums at a root, and accumulation on a device.
#include "compiler/emit/sums.h"

#include <algorithm>
#include <cmath>

#include "compiler/emit/transfers.h"
#include "decide/servers.h"

namespace heterog::compiler {
namespace {

bool is_mean(const Emission& e, TensorId tensor) {
  return e.problem.splits->rules[tensor].kind == graph::SplitKind::kMean;
}

Addends addends_of(const Emission& e, TensorId tensor) {
  return {e.problem.graph->tensor(tensor).producer, is_mean(e, tensor)};
}

// The sum of two addends of one device, where the first was or in a new buffer.
Location accumulated(Emission& e, TensorId tensor, const Location& sum, const Location& addend,
                     Bytes bytes, InPlace in_place) {
  const TaskId id =
      add_sum(e, TaskKind::kAccumulate, tensor, sum.device, 2, bytes, addends_of(e, tensor));
  for (const Location* one : {&sum, &addend}) {
    e.builder.contribute(id, {.device = one->device,
                              .buffer = one->source.buffer,
                              .end = e.problem.batch,
                              .weight = one->weight});
    e.builder.depend(one->source.task, id);
    e.builder.read(id, one->source.buffer);
  }
  const BufferId result = in_place == InPlace::kYes
                              ? sum.source.buffer
                              : e.builder.allocate(id, sum.device, bytes, tensor);
  return {sum.device, {id, result}, 1};
}

}  // namespace

TaskId add_sum(Emission& e, TaskKind kind, TensorId tensor, DeviceId device, int operands,
               Bytes bytes, const Addends& of) {
  PlanBuilder::Task task;
  task.kind = kind;
  task.op = of.maker;
  task.tensor = tensor;
  task.device = device;
  task.end = e.problem.batch;
  task.duration =
      combine_duration(e.type_of(device), operands, bytes, cluster::OpClass::kElementwise);
  const TaskId id = e.builder.add_task(task);
  e.builder.hold(id, {e.builder.plan().compute_stream(device), task.duration});
  e.builder.carry(id, {tensor, of.are_means});
  return id;
}

InPlace may_be_overwritten(const cost::Problem& problem, TensorId tensor) {
  for (OpId op : problem.graph->consumers(tensor)) {
    const graph::Op& info = problem.graph->op(op);
    if (info.phase == graph::Phase::kUpdate) continue;
    if (!info.alias) return InPlace::kNo;
    // Part of the tensor may be the gradient of one parameter, and part be added to another's.
    for (TensorId view : problem.graph->outputs(op)) {
      if (view.valid() && may_be_overwritten(problem, view) == InPlace::kNo) return InPlace::kNo;
    }
  }
  return InPlace::kYes;
}

std::vector<Location> accumulate(Emission& e, TensorId tensor, std::vector<Location> addends,
                                 Bytes bytes, InPlace in_place) {
  const decide::LayoutId made = e.layout.of_op[e.problem.graph->tensor(tensor).producer];
  if (e.layout.merged[made] == made) return addends;  // mostly
  constexpr std::size_t kNone = ~std::size_t{0};
  IdVector<DeviceId, std::size_t> sum_of(e.builder.plan().device_count, kNone);
  std::vector<Location> sums;
  std::vector<InPlace> lies_in_addend;  // parallel to sums: the first addition may need a buffer
  for (const Location& addend : addends) {
    std::size_t& at = sum_of[addend.device];
    if (at == kNone) {
      at = sums.size();
      sums.push_back(addend);
      lies_in_addend.push_back(in_place);
      continue;
    }
    sums[at] = accumulated(e, tensor, sums[at], addend, bytes, lies_in_addend[at]);
    lies_in_addend[at] = InPlace::kYes;
  }
  return sums;
}

std::vector<DeviceId> devices_of(std::span<const Location> locations) {
  std::vector<DeviceId> devices;
  devices.reserve(locations.size());
  for (const Location& location : locations) devices.push_back(location.device);
  std::sort(devices.begin(), devices.end());
  return devices;
}

TaskId add_collective(Emission& e, TaskKind kind, TensorId tensor,
                      std::span<const DeviceId> devices, const cost::CollectiveCost& cost,
                      Bytes bytes, OpId op) {
  const Plan& plan = e.builder.plan();
  PlanBuilder::Task task;
  task.kind = kind;
  task.op = op.valid() ? op : e.problem.graph->tensor(tensor).producer;
  task.tensor = tensor;
  task.device = devices.front();
  task.end = e.problem.batch;
  task.moved_bytes = bytes;
  task.duration = cost.duration;
  const TaskId id = e.builder.add_task(task);
  for (DeviceId device : devices) {
    e.builder.hold(id, {plan.collective_channel(device), cost.duration});
    e.builder.participate(id, device);
  }
  for (const auto& [link, held] : cost.links) {
    const double crossed = to_seconds(held) * e.problem.cluster->link(link).bytes_per_second;
    e.builder.hold(id, {plan.link(link), held, std::llround(crossed)});
  }
  if (e.options.collectives == CompileOptions::Collectives::kSerial) {
    e.builder.hold(id, {plan.all_collectives(), cost.duration});
  }
  return id;
}

std::vector<Location> all_reduce(Emission& e, const Reduced& reduced,
                                 std::span<const Location> locations, const Moved& moved) {
  std::vector<const Location*> by_device;
  for (const Location& location : locations) by_device.push_back(&location);
  std::sort(by_device.begin(), by_device.end(),
            [](const Location* a, const Location* b) { return a->device < b->device; });
  const TaskId id = add_collective(e, TaskKind::kAllReduce, reduced.tensor, devices_of(locations),
                                   moved.cost, moved.bytes);
  e.builder.carry(id, {reduced.tensor, is_mean(e, reduced.tensor), reduced.compression});
  for (const Location* location : by_device) {
    e.builder.contribute(
        id, {.device = location->device, .end = e.problem.batch, .weight = location->weight});
  }
  std::vector<Location> results;
  for (const Location& location : locations) {
    e.builder.depend(location.source.task, id);
    e.builder.read(id, location.source.buffer);
    if (moved.scratch > 0) {
      e.builder.allocate_scratch(id, location.device, moved.scratch, reduced.tensor);
    }
    const BufferId buffer =
        reduced.in_place == InPlace::kYes
            ? location.source.buffer
            : e.builder.allocate(id, location.device, reduced.bytes, reduced.tensor);
    results.push_back({location.device, {id, buffer}});
  }
  return results;
}

std::vector<Gathered> gathered_by_speakers(const Emission& e, std::span<const Location> addends,
                                           DeviceId server) {
  IdVector<DeviceId, std::uint32_t> place(e.problem.cluster->place_count(), 0);
  for (std::size_t i = 0; i < addends.size(); ++i) {
    place[addends[i].device] = static_cast<std::uint32_t>(i);
  }
  const auto at = [&](DeviceId device) { return addends[place[device]]; };
  std::vector<Gathered> all;
  for (const Location& addend : addends) {
    if (addend.device == server) all.push_back({server, {addend}});
  }
  for (const decide::Speaker& speaker :
       decide::speakers(*e.problem.cluster, devices_of(addends), server)) {
    Gathered& one = all.emplace_back(Gathered{speaker.device, {at(speaker.device)}});
    for (DeviceId other : speaker.others) one.addends.push_back(at(other));
  }
  return all;
}

std::vector<Location> sum_in_machines(Emission& e, TensorId tensor,
                                      std::span<const Location> locations, Bytes bytes,
                                      DeviceId server, InPlace in_place) {
  std::vector<Location> sums;
  for (const Gathered& one : gathered_by_speakers(e, locations, server)) {
    sums.push_back(sum_at(e, tensor, one.addends, bytes, one.at, TaskKind::kPush, in_place));
  }
  return sums;
}

Location sum_at(Emission& e, TensorId tensor, std::span<const Location> locations, Bytes bytes,
                DeviceId root, TaskKind transfer_kind, InPlace in_place) {
  const OpId producer = e.problem.graph->tensor(tensor).producer;
  const cost::Compression compression =
      transfer_kind == TaskKind::kPush
          ? cost::cast_of(e.problem.compression, *e.problem.graph, tensor)
          : cost::Compression{};
  std::vector<Contribution> arrived;
  std::vector<Source> addends;
  const Location* local = nullptr;
  for (const Location& location : locations) {
    if (location.device == root) {
      local = &location;
      continue;
    }
    addends.push_back(transfer(e,
                               {.kind = transfer_kind,
                                .op = producer,
                                .tensor = tensor,
                                .source = location.device,
                                .destination = root,
                                .end = e.problem.batch,
                                .bytes = bytes,
                                .bytes_at_destination = bytes,
                                .weighted = is_mean(e, tensor),
                                .weight = location.weight,
                                .compression = compression},
                               location.source));
    arrived.push_back(
        {.device = location.device, .buffer = addends.back().buffer, .end = e.problem.batch});
  }
  if (addends.empty()) return *local;
  if (!local && addends.size() == 1) return {root, addends.front()};
  const int operands = static_cast<int>(addends.size()) + (local ? 1 : 0);
  const TaskId id =
      add_sum(e, TaskKind::kSum, tensor, root, operands, bytes, addends_of(e, tensor));
  if (local) {
    e.builder.contribute(id, {.device = root,
                              .buffer = local->source.buffer,
                              .end = e.problem.batch,
                              .weight = local->weight});
  }
  for (const Contribution& one : arrived) e.builder.contribute(id, one);
  for (const Source& addend : addends) {
    e.builder.depend(addend.task, id);
    e.builder.read(id, addend.buffer);
  }
  if (local) {
    e.builder.depend(local->source.task, id);
    e.builder.read(id, local->source.buffer);
  }
  if (in_place == InPlace::kYes) {
    return {root, {id, local ? local->source.buffer : addends.front().buffer}};
  }
  return {root, {id, e.builder.allocate(id, root, bytes, tensor)}};
}

}  // namespace heterog::compiler
