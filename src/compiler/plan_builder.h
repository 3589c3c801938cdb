// Appends tasks to a plan under construction, then freezes its adjacency.
#pragma once

#include <vector>

#include "compiler/plan.h"

namespace heterog::compiler {

// Appends tasks in a topological order, each whole before the next is begun:
//
//   const TaskId task = builder.add_task({.kind = TaskKind::kTransfer, …});
//   builder.hold(task, {link, duration, bytes});
//   builder.update(task, parameter);
//   builder.depend(earlier, task);
//   builder.read(task, buffer);
//   builder.carry(task, {tensor});
//   builder.contribute(task, {.device = source, .buffer = buffer, …});
//   Plan plan = std::move(builder).finish();
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

  // Adds a task. Its holds, buffers, reads and predecessors are added before the next task; it can
  // only wait for earlier ones.
  TaskId add_task(const Task& task);
  // Nothing more is added to the task before: the plan can be read up to it.
  void end_task();
  void hold([[maybe_unused]] TaskId task, const Hold& hold) {
    EXPECT(is_latest(task));
    plan_.holds.push(hold);
  }
  void participate([[maybe_unused]] TaskId task, DeviceId device) {
    EXPECT(is_latest(task));
    plan_.participants.push(device);
  }
  void update([[maybe_unused]] TaskId task, TensorId parameter) {
    EXPECT(is_latest(task) && plan_.kind[task] == TaskKind::kUpdate);
    plan_.updated.push(parameter);
  }
  void depend(TaskId before, [[maybe_unused]] TaskId after) {
    EXPECT(is_latest(after) && before.value() < after.value());
    predecessors_.push(before);
  }
  // A payload is given its tensors and its contributions in their order (see Plan).
  void carry(TaskId task, const Carried& carried);
  void contribute([[maybe_unused]] TaskId task, const Contribution& contribution) {
    EXPECT(is_latest(task) && plan_.payload[task].valid());
    plan_.contributions.push(contribution);
  }
  BufferId allocate(TaskId task, DeviceId device, Bytes bytes, TensorId tensor);
  // While the task runs.
  void allocate_scratch(TaskId task, DeviceId device, Bytes bytes, TensorId tensor);
  void read(TaskId task, BufferId buffer);

  // Freezes adjacency. Dependencies named twice are kept once.
  Plan finish() &&;

 private:
  bool is_latest(TaskId task) const { return task.value() + 1 == plan_.task_count(); }

  Plan plan_;
  bool is_open_ = false;              // the last task
  Csr<TaskId, TaskId> predecessors_;  // in the order in which they were named
};

}  // namespace heterog::compiler
