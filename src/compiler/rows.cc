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

Bytes row_bytes(const cost::Problem& problem, TensorId gradient, std::int64_t samples) {
  const Bytes whole = problem.graph->bytes(gradient, problem.batch);
  const auto sparse = graph::lookups(*problem.graph, gradient, samples);
  return sparse ? std::min(whole, sparse->row_bytes + sparse->index_bytes) : whole;
}

TaskId Movement::add_rows(TensorId tensor, DeviceId device, Bytes rows) {
  PlanBuilder::Task task;
  task.kind = TaskKind::kSum;
  task.op = graph_.tensor(tensor).producer;
  task.tensor = tensor;
  task.device = device;
  task.end = problem_.batch;
  task.payload = Payload::kRows;
  task.duration = add_rows_duration(problem_.cluster->type_of(device), rows);
  const TaskId id = builder_.add_task(task);
  builder_.hold(id, {builder_.plan().compute_stream(device), task.duration});
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
                                         std::span<const Bytes> rows, DeviceId root,
                                         InPlace in_place) {
  const OpId producer = graph_.tensor(tensor).producer;
  std::vector<Source> addends;
  const Location* own = nullptr;
  Bytes added_bytes = 0;
  const Bytes whole = graph_.bytes(tensor, problem_.batch);
  for (std::size_t i = 0; i < locations.size(); ++i) {
    if (locations[i].device == root) {
      own = &locations[i];
      continue;
    }
    // A slice of as many rows as the table sends the whole.
    const Payload payload = rows[i] < whole ? Payload::kRows : Payload::kWhole;
    addends.push_back(transfer({TaskKind::kPush, producer, tensor, locations[i].device, root, 0,
                                problem_.batch, rows[i], rows[i], payload},
                               locations[i].source));
    added_bytes += rows[i];
  }
  ENSURE(own);
  const TaskId sum = add_rows(tensor, root, added_bytes);
  for (const Source& addend : addends) {
    builder_.depend(addend.task, sum);
    builder_.read(sum, addend.buffer);
  }
  return added(sum, tensor, *own, in_place);
}

std::vector<Movement::Location> Movement::gather_rows(TensorId tensor,
                                                      std::span<const Location> locations,
                                                      Bytes rows, InPlace in_place) {
  std::vector<DeviceId> devices;
  for (const Location& location : locations) devices.push_back(location.device);
  std::sort(devices.begin(), devices.end());
  const Bytes all = static_cast<Bytes>(devices.size()) * rows;
  const TaskId gather =
      add_collective(tensor, devices,
                     cost::collective_cost(cost::all_gather_shape(*problem_.cluster, devices), all),
                     all, Payload::kRows);
  std::vector<BufferId> gathered;
  for (const Location& location : locations) {
    builder_.depend(location.source.task, gather);
    builder_.read(gather, location.source.buffer);
    gathered.push_back(builder_.allocate(gather, location.device, all, tensor));
  }
  std::vector<Location> results;
  for (std::size_t i = 0; i < locations.size(); ++i) {
    const TaskId sum = add_rows(tensor, locations[i].device, all - rows);
    builder_.depend(gather, sum);
    builder_.read(sum, gathered[i]);
    results.push_back(added(sum, tensor, locations[i], in_place));
  }
  return results;
}

}  // namespace heterog::compiler
