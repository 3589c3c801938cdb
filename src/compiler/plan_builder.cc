// Collects tasks and their relations in flat lists and sorts them into rows at the end.
#include "compiler/plan_builder.h"

#include <algorithm>

namespace heterog::compiler {

TaskId PlanBuilder::add_task(const Task& task) {
  plan_.op.push_back(task.op);
  plan_.tensor.push_back(task.tensor);
  plan_.device.push_back(task.device);
  plan_.peer.push_back(task.peer);
  plan_.begin.push_back(task.begin);
  plan_.end.push_back(task.end);
  plan_.duration.push_back(task.duration);
  plan_.moved_bytes.push_back(task.moved_bytes);
  plan_.workspace.push_back(task.workspace);
  return plan_.kind.push_back(task.kind);
}

BufferId PlanBuilder::allocate(TaskId task, DeviceId device, Bytes bytes, TensorId tensor) {
  const BufferId buffer = plan_.buffers.push_back({device, bytes, tensor});
  plan_.readers.push_back(0);
  allocates_.emplace_back(task, buffer);
  return buffer;
}

void PlanBuilder::read(TaskId task, BufferId buffer) {
  if (!buffer.valid()) return;
  reads_.emplace_back(task, buffer);
  ++plan_.readers[buffer];
}

Plan PlanBuilder::finish() && {
  const std::size_t tasks = plan_.task_count();
  // By the later task first (a counting sort), so that repeats of an edge can be seen side by side.
  auto predecessors = Csr<TaskId, TaskId>::from_pairs(tasks, [&] {
    std::vector<std::pair<TaskId, TaskId>> reversed;
    reversed.reserve(edges_.size());
    for (const auto& [before, after] : edges_) reversed.emplace_back(after, before);
    return reversed;
  }());
  plan_.predecessors.assign(tasks, 0);
  edges_.clear();
  for (TaskId task : plan_.task_ids()) {
    auto row = predecessors.mutable_row(task);
    std::sort(row.begin(), row.end());
    const auto unique_end = std::unique(row.begin(), row.end());
    for (auto it = row.begin(); it != unique_end; ++it) {
      edges_.emplace_back(*it, task);
      ++plan_.predecessors[task];
    }
  }
  plan_.successors = Csr<TaskId, TaskId>::from_pairs(tasks, edges_);
  plan_.holds = Csr<TaskId, Hold>::from_pairs(tasks, holds_);
  plan_.participants = Csr<TaskId, DeviceId>::from_pairs(tasks, participants_);
  plan_.allocates = Csr<TaskId, BufferId>::from_pairs(tasks, allocates_);
  plan_.reads = Csr<TaskId, BufferId>::from_pairs(tasks, reads_);
  return std::move(plan_);
}

}  // namespace heterog::compiler
