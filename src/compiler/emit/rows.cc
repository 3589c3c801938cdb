// Sizes of sparse gradients, and the tasks that add them up.
#include "compiler/emit/rows.h"

#include "compiler/emit/transfers.h"
#include "graph/lookups.h"

namespace heterog::compiler {

namespace {

// Rows are read, and what they are added to is read and written.
Nanoseconds add_rows_duration(const cluster::DeviceType& type, Bytes rows) {
  return combine_duration(type, 2, rows, cluster::OpClass::kEmbedding);
}

// `zeros`: bytes that are written before rows are added to them.
TaskId add_rows(Emission& e, TensorId tensor, DeviceId device, Bytes rows, Bytes zeros = 0) {
  PlanBuilder::Task task;
  task.kind = TaskKind::kSum;
  task.op = e.problem.graph->tensor(tensor).producer;
  task.tensor = tensor;
  task.device = device;
  task.end = e.problem.batch;
  task.duration = add_rows_duration(e.type_of(device), rows);
  if (zeros > 0) {
    task.duration += combine_duration(e.type_of(device), 0, zeros, cluster::OpClass::kElementwise);
  }
  const TaskId id = e.builder.add_task(task);
  e.builder.hold(id, {e.builder.plan().compute_stream(device), task.duration});
  e.builder.carry(id, {tensor});
  return id;
}

// The result is where the device's own gradient was, or in a new buffer.
Location added(Emission& e, TaskId sum, TensorId tensor, const Location& own, InPlace in_place) {
  e.builder.depend(own.source.task, sum);
  e.builder.read(sum, own.source.buffer);
  if (in_place == InPlace::kYes) return {own.device, {sum, own.source.buffer}};
  const Bytes bytes = e.problem.graph->bytes(tensor, e.problem.batch);
  return {own.device, {sum, e.builder.allocate(sum, own.device, bytes, tensor)}};
}

}  // namespace

std::optional<SparseRows> sparse_rows(const cost::Problem& problem, TensorId gradient,
                                      std::int64_t samples) {
  const auto found = graph::lookups(*problem.graph, gradient, samples);
  if (!found) return std::nullopt;
  return SparseRows{found->rows, found->row_bytes + found->index_bytes};
}

Location sum_rows_at(Emission& e, TensorId tensor, std::span<const Location> locations,
                     std::span<const SparseRows> rows, DeviceId root, InPlace in_place) {
  const OpId producer = e.problem.graph->tensor(tensor).producer;
  std::vector<Source> addends;
  std::vector<Contribution> as_rows, dense;
  const Location* own = nullptr;
  Bytes added_bytes = 0;
  const Bytes whole = e.problem.graph->bytes(tensor, e.problem.batch);
  for (std::size_t i = 0; i < locations.size(); ++i) {
    if (locations[i].device == root) {
      own = &locations[i];
      continue;
    }
    // A slice of as many rows as the table sends the whole.
    const bool shorter = rows[i].bytes < whole;
    const Bytes bytes = shorter ? rows[i].bytes : whole;
    addends.push_back(transfer(e,
                               {.kind = TaskKind::kPush,
                                .op = producer,
                                .tensor = tensor,
                                .source = locations[i].device,
                                .destination = root,
                                .end = e.problem.batch,
                                .bytes = bytes,
                                .bytes_at_destination = bytes,
                                .encoding = shorter ? Encoding::kRows : Encoding::kDense,
                                .rows = rows[i].count},
                               locations[i].source));
    (shorter ? as_rows : dense)
        .push_back({.device = locations[i].device,
                    .buffer = addends.back().buffer,
                    .encoding = shorter ? Encoding::kRows : Encoding::kDense,
                    .end = shorter ? rows[i].count : e.problem.batch});
    added_bytes += bytes;
  }
  ENSURE(own);
  const TaskId sum = add_rows(e, tensor, root, added_bytes);
  e.builder.contribute(sum, {.device = root, .buffer = own->source.buffer, .end = e.problem.batch});
  for (const Contribution& one : as_rows) e.builder.contribute(sum, one);
  for (const Contribution& one : dense) e.builder.contribute(sum, one);
  for (const Source& addend : addends) {
    e.builder.depend(addend.task, sum);
    e.builder.read(sum, addend.buffer);
  }
  return added(e, sum, tensor, *own, in_place);
}

Location rows_arrived_at(Emission& e, TensorId tensor, const Location& made, const SparseRows& rows,
                         DeviceId device) {
  const Source arrived = transfer(e,
                                  {.op = e.problem.graph->tensor(tensor).producer,
                                   .tensor = tensor,
                                   .source = made.device,
                                   .destination = device,
                                   .end = e.problem.batch,
                                   .bytes = rows.bytes,
                                   .bytes_at_destination = rows.bytes,
                                   .encoding = Encoding::kRows,
                                   .rows = rows.count},
                                  made.source);
  const Bytes whole = e.problem.graph->bytes(tensor, e.problem.batch);
  const TaskId sum = add_rows(e, tensor, device, rows.bytes, whole);
  e.builder.contribute(sum, {.device = made.device,
                             .buffer = arrived.buffer,
                             .encoding = Encoding::kRows,
                             .end = rows.count});
  e.builder.depend(arrived.task, sum);
  e.builder.read(sum, arrived.buffer);
  return {device, {sum, e.builder.allocate(sum, device, whole, tensor)}};
}

// Every device adds all members' rows, its own among them, in the order of members, in the place of
// those that its gradient has: so all get the same bits.
std::vector<Location> gather_rows(Emission& e, TensorId tensor, std::span<const Location> locations,
                                  const SparseRows& rows, InPlace in_place) {
  const std::vector<DeviceId> devices = devices_of(locations);
  const Bytes all = static_cast<Bytes>(e.count(devices)) * rows.bytes;
  const TaskId gather = add_collective(e, TaskKind::kAllGather, tensor, devices,
                                       e.costs.all_gather(devices, all), all);
  const auto contribute_rows = [&](TaskId task, BufferId buffer) {
    for (DeviceId device : devices) {
      e.builder.contribute(
          task,
          {.device = device, .buffer = buffer, .encoding = Encoding::kRows, .end = rows.count});
    }
  };
  e.builder.carry(gather, {tensor});
  contribute_rows(gather, BufferId());
  std::vector<BufferId> gathered;
  for (const Location& location : locations) {
    e.builder.depend(location.source.task, gather);
    e.builder.read(gather, location.source.buffer);
    gathered.push_back(e.builder.allocate(gather, location.device, all, tensor));
  }
  std::vector<Location> results;
  for (std::size_t i = 0; i < locations.size(); ++i) {
    const TaskId sum = add_rows(e, tensor, locations[i].device, all - rows.bytes);
    e.builder.contribute(sum, {.device = locations[i].device,
                               .buffer = locations[i].source.buffer,
                               .end = e.problem.batch});
    contribute_rows(sum, gathered[i]);
    e.builder.depend(gather, sum);
    e.builder.read(sum, gathered[i]);
    results.push_back(added(e, sum, tensor, locations[i], in_place));
  }
  return results;
}

}  // namespace heterog::compiler
