// Appends tasks to a plan under construction, then freezes its adjacency.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compiler/plan.h"

namespace heterog::compiler {

class PlanBuilder {
 public:
  struct Task {
    TaskKind kind = TaskKind::kCompute;
    OpId op;
    TensorId tensor;
    DeviceId device;
    DeviceId peer;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Nanoseconds duration = 0;
    Bytes moved_bytes = 0;
    Bytes workspace = 0;
  };

  PlanBuilder(std::size_t devices, std::size_t links) {
    plan_.device_count = devices;
    plan_.link_count = links;
  }
  const Plan& plan() const { return plan_; }
  Plan& plan() { return plan_; }

  // What it holds, allocates, reads and waits for is added after; a dependency must name an earlier
  // task first.
  TaskId add_task(const Task& task);
  void hold(TaskId task, const Hold& hold) { holds_.emplace_back(task, hold); }
  void participate(TaskId task, DeviceId device) { participants_.emplace_back(task, device); }
  void depend(TaskId before, TaskId after) { edges_.emplace_back(before, after); }
  BufferId allocate(TaskId task, DeviceId device, Bytes bytes, TensorId tensor);
  void read(TaskId task, BufferId buffer);

  // Freezes adjacency. Dependencies named twice are kept once.
  Plan finish() &&;

 private:
  Plan plan_;
  std::vector<std::pair<TaskId, TaskId>> edges_;
  std::vector<std::pair<TaskId, Hold>> holds_;
  std::vector<std::pair<TaskId, DeviceId>> participants_;
  std::vector<std::pair<TaskId, BufferId>> allocates_;
  std::vector<std::pair<TaskId, BufferId>> reads_;
};

}  // namespace heterog::compiler
