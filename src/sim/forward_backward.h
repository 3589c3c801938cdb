// Better priorities for a plan, out of its own schedule: forwards, then backwards from the end.
#pragma once

#include "compiler/plan.h"
#include "sim/simulator.h"

namespace heterog::sim {

// Forward-backward improvement of schedules (Li and Willis; Tormos and Lova). The plan is run
// backwards, in simulated time, in the order in which its tasks ended: what ended last goes first.
// That moves every task as close to the end as those behind it allow, so that what was early
// without need makes room. When a task starts in that schedule is how urgent it is in the next
// forward one.
//
//   ForwardBackward improver(plan);
//   SimResult step = simulate(plan, order);                 // with its timeline
//   const auto start = improver.latest_starts(step);        // the earlier, the more urgent
//
// Only priorities come of it, so the mirror image may be a little off: a task that releases a
// resource early does so early in its mirror image too, and memory is not looked at.
class ForwardBackward {
 public:
  explicit ForwardBackward(const compiler::Plan& plan);
  // Of every task, in a schedule of the mirror image; the origin is no matter.
  IdVector<TaskId, Nanoseconds> latest_starts(const SimResult& forward);

 private:
  TaskId mirror_of(TaskId task) const { return TaskId(mirror_.task_count() - 1 - task.value()); }
  compiler::Plan mirror_;
  Simulator simulator_;
};

}  // namespace heterog::sim
