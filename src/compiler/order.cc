// Computes ranks backwards and sorts the tasks by them.
#include "compiler/order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace heterog::compiler {

void set_ranks(Plan& plan) {
  const std::size_t tasks = plan.task_count();
  plan.rank.assign(tasks, 0);
  for (std::size_t i = tasks; i-- > 0;) {
    const TaskId task(i);
    Nanoseconds longest = 0;
    for (TaskId next : plan.successors[task]) longest = std::max(longest, plan.rank[next]);
    plan.rank[task] = plan.duration[task] + longest;
  }
  std::vector<TaskId> sorted;
  sorted.reserve(tasks);
  for (TaskId task : plan.task_ids()) sorted.push_back(task);
  const auto rest = [&](TaskId t) {
    return std::tuple(plan.op[t], plan.kind[t], plan.device[t], plan.peer[t], plan.begin[t],
                      plan.tensor[t], t);
  };
  std::sort(sorted.begin(), sorted.end(), [&](TaskId a, TaskId b) {
    if (plan.rank[a] != plan.rank[b]) return plan.rank[a] > plan.rank[b];
    return rest(a) < rest(b);
  });
  plan.order.assign(tasks, 0);
  for (std::size_t i = 0; i < tasks; ++i) plan.order[sorted[i]] = static_cast<std::uint32_t>(i);
}

}  // namespace heterog::compiler
