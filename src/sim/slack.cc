// From the last task to start back to the first: what comes after a task is known by then.
#include "sim/slack.h"

#include <algorithm>

namespace heterog::sim {

IdVector<TaskId, Nanoseconds> slacks(const compiler::Plan& plan, const SimResult& result) {
  ENSURE(result.dispatch.size() == plan.task_count());
  IdVector<TaskId, Nanoseconds> slack(plan.task_count(), 0);
  IdVector<ResourceId, TaskId> next(plan.resource_count());  // to hold it, of those gone through
  for (std::size_t i = result.dispatch.size(); i-- > 0;) {
    const TaskId task = result.dispatch[i];
    Nanoseconds least = result.step - result.end[task];
    const auto keep_before = [&](TaskId after, Nanoseconds released) {
      least = std::min(least, result.start[after] - released + slack[after]);
    };
    for (TaskId after : plan.successors[task]) keep_before(after, result.end[task]);
    for (const compiler::Hold& hold : plan.holds[task]) {
      TaskId& after = next[hold.resource];
      if (after.valid()) keep_before(after, held_until(plan, result, task, hold));
      after = task;
    }
    slack[task] = least;
  }
  return slack;
}

}  // namespace heterog::sim
