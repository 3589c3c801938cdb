// Appends tasks to a plan under construction, then freezes its adjacency.
#pragma once

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

  // Builds into the memory of `recycled`, a plan that nobody needs any more.
  PlanBuilder(std::size_t devices, std::size_t links, Plan recycled = {});
  const Plan& plan() const { return plan_; }
  Plan& plan() { return plan_; }

  // What a task holds, allocates, reads and waits for is added before the next task; it can only
  // wait for earlier ones.
  TaskId add_task(const Task& task);
  void hold([[maybe_unused]] TaskId task, const Hold& hold) {
    EXPECT(is_latest(task));
    plan_.holds.push(hold);
  }
  void participate([[maybe_unused]] TaskId task, DeviceId device) {
    EXPECT(is_latest(task));
    plan_.participants.push(device);
  }
  void depend(TaskId before, [[maybe_unused]] TaskId after) {
    EXPECT(is_latest(after) && before < after);
    predecessors_.push(before);
  }
  BufferId allocate(TaskId task, DeviceId device, Bytes bytes, TensorId tensor);
  void read(TaskId task, BufferId buffer);

  // Freezes adjacency. Dependencies named twice are kept once.
  Plan finish() &&;

 private:
  bool is_latest(TaskId task) const { return task.value() + 1 == plan_.task_count(); }
  void end_task();

  Plan plan_;
  Csr<TaskId, TaskId> predecessors_;  // in the order in which they were named
};

}  // namespace heterog::compiler
