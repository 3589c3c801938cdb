// Sizes of sparse gradients, and the tasks that add them up.
#include "compiler/rows.h"

#include <algorithm>

#include "compiler/movement.h"
#include "graph/lookups.h"

namespace heterog::compiler {

namespace {

// Rows are read, and what they are added to is read and written.
Nanoseconds add_rows_duration(const cluster::DeviceType& type, Bytes rows) {
  return combine_duration(type, 2, rows, cluster::OpClass::kEmbedding);
}

}  // namespace

std::optional<SparseRows> sparse_rows(const cost::Problem& problem, TensorId gradient,
                                      std::int64_t samples) {
  const auto found = graph::lookups(*problem.graph, gradient, samples);
  if (!found) return std::nullopt;
  return SparseRows{found->rows, found->row_bytes + found->index_bytes};
}

TaskId Movement::add_rows(TensorId tensor, DeviceId device, Bytes rows) {
  PlanBuilder::Task task;
  task.kind = TaskKind::kSum;
  task.op = graph_.tensor(tensor).producer;
  task.tensor = tensor;
  task.device = device;
  task.end = problem_.batch;
  task.duration = add_rows_duration(problem_.cluster->type_of(device), rows);
  const TaskId id = builder_.add_task(task);
  builder_.hold(id, {builder_.plan().compute_stream(device), task.duration});
  builder_.carry(id, {tensor});
  return id;
}

// The result is where the device's own gradient was, or in a new buffer.
Movement::Location Movement::added(TaskId sum, TensorId tensor, const Location& own,
                                   InPlace in_place) {
  builder_.depend(own.source.task, sum);
  builder_.read(sum, own.source.buffer);
  if (in_place == InPlace::kYes) return {own.device, {sum, own.source.buffer}};
  const Bytes bytes = graph_.bytes(tensor, problem_.batch);
  return {own.device, {sum, builder_.allocate(sum, own.device, bytes, tensor)}};
}

Movement::Location Movement::sum_rows_at(TensorId tensor, std::span<const Location> locations,
                                         std::span<const SparseRows> rows, DeviceId root,
                                         InPlace in_place) {
  const OpId producer = graph_.tensor(tensor).producer;
  std::vector<Source> addends;
  std::vector<Contribution> as_rows, dense;
  const Location* own = nullptr;
  Bytes added_bytes = 0;
  const Bytes whole = graph_.bytes(tensor, problem_.batch);
  for (std::size_t i = 0; i < locations.size(); ++i) {
    if (locations[i].device == root) {
      own = &locations[i];
      continue;
    }
    // A slice of as many rows as the table sends the whole.
    const bool shorter = rows[i].bytes < whole;
    const Bytes bytes = shorter ? rows[i].bytes : whole;
    addends.push_back(transfer({.kind = TaskKind::kPush,
                                .op = producer,
                                .tensor = tensor,
                                .source = locations[i].device,
                                .destination = root,
                                .end = problem_.batch,
                                .bytes = bytes,
                                .bytes_at_destination = bytes,
                                .encoding = shorter ? Encoding::kRows : Encoding::kDense,
                                .rows = rows[i].count},
                               locations[i].source));
    (shorter ? as_rows : dense)
        .push_back({.device = locations[i].device,
                    .buffer = addends.back().buffer,
                    .encoding = shorter ? Encoding::kRows : Encoding::kDense,
                    .end = shorter ? rows[i].count : problem_.batch});
    added_bytes += bytes;
  }
  ENSURE(own);
  const TaskId sum = add_rows(tensor, root, added_bytes);
  builder_.contribute(sum, {.device = root, .buffer = own->source.buffer, .end = problem_.batch});
  for (const Contribution& one : as_rows) builder_.contribute(sum, one);
  for (const Contribution& one : dense) builder_.contribute(sum, one);
  for (const Source& addend : addends) {
    builder_.depend(addend.task, sum);
    builder_.read(sum, addend.buffer);
  }
  return added(sum, tensor, *own, in_place);
}

// Every device adds all members' rows, its own among them, in the order of members, in the place of
// those that its gradient has: so all get the same bits.
std::vector<Movement::Location> Movement::gather_rows(TensorId tensor,
                                                      std::span<const Location> locations,
                                                      const SparseRows& rows, InPlace in_place) {
  std::vector<DeviceId> devices;
  for (const Location& location : locations) devices.push_back(location.device);
  std::sort(devices.begin(), devices.end());
  const Bytes all = static_cast<Bytes>(devices.size()) * rows.bytes;
  const TaskId gather =
      add_collective(tensor, devices,
                     cost::collective_cost(cost::all_gather_shape(*problem_.cluster, devices), all),
                     all, TaskKind::kAllGather);
  const auto contribute_rows = [&](TaskId task, BufferId buffer) {
    for (DeviceId device : devices) {
      builder_.contribute(
          task,
          {.device = device, .buffer = buffer, .encoding = Encoding::kRows, .end = rows.count});
    }
  };
  builder_.carry(gather, {tensor});
  contribute_rows(gather, BufferId());
  std::vector<BufferId> gathered;
  for (const Location& location : locations) {
    builder_.depend(location.source.task, gather);
    builder_.read(gather, location.source.buffer);
    gathered.push_back(builder_.allocate(gather, location.device, all, tensor));
  }
  std::vector<Location> results;
  for (std::size_t i = 0; i < locations.size(); ++i) {
    const TaskId sum = add_rows(tensor, locations[i].device, all - rows.bytes);
    builder_.contribute(sum, {.device = locations[i].device,
                              .buffer = locations[i].source.buffer,
                              .end = problem_.batch});
    contribute_rows(sum, gathered[i]);
    builder_.depend(gather, sum);
    builder_.read(sum, gathered[i]);
    results.push_back(added(sum, tensor, locations[i], in_place));
  }
  return results;
}

}  // namespace heterog::compiler
