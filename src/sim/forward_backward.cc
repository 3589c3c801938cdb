// Builds the mirror image of a plan and simulates it.
#include "sim/forward_backward.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/plan_builder.h"

namespace heterog::sim {

using compiler::Plan;
using compiler::PlanBuilder;

ForwardBackward::ForwardBackward(const Plan& plan) {
  const std::size_t tasks = plan.task_count();
  PlanBuilder builder(plan.device_count, plan.link_count);
  for (std::size_t i = tasks; i-- > 0;) {
    const TaskId task(i);
    const TaskId mirrored = builder.add_task({.kind = compiler::TaskKind::kCompute,
                                              .op = plan.op[task],
                                              .device = plan.device[task],
                                              .duration = plan.duration[task]});
    for (const compiler::Hold& hold : plan.holds[task]) builder.hold(mirrored, hold);
    for (TaskId next : plan.successors[task]) {
      builder.depend(TaskId(tasks - 1 - next.value()), mirrored);
    }
  }
  mirror_ = std::move(builder).finish();
  mirror_.static_memory.assign(plan.device_count, {});
  mirror_.capacity = plan.capacity;
  mirror_.priority.assign(tasks, 0);
}

IdVector<TaskId, Nanoseconds> ForwardBackward::latest_starts(const SimResult& forward) {
  // What ended last is first; of what ended together, the later task.
  std::vector<TaskId> sorted;
  for (TaskId task : mirror_.task_ids()) sorted.push_back(task);
  std::stable_sort(sorted.begin(), sorted.end(), [&](TaskId a, TaskId b) {
    return forward.end[mirror_of(a)] > forward.end[mirror_of(b)];
  });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    mirror_.priority[sorted[i]] = static_cast<std::uint32_t>(i);
  }
  const SimResult& backward = simulator_.simulate_timeline(mirror_, decide::OrderPolicy::kPriority);
  IdVector<TaskId, Nanoseconds> start(mirror_.task_count(), 0);
  for (TaskId task : mirror_.task_ids()) {
    start[task] = backward.step - backward.end[mirror_of(task)];
  }
  return start;
}

}  // namespace heterog::sim
