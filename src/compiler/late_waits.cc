// A topological order that keeps to the old one where it can.
#include "compiler/late_waits.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>

#include "compiler/permute_tasks.h"

namespace heterog::compiler {
namespace {

Csr<TaskId, TaskId> all_successors(const Plan& plan,
                                   std::span<const std::pair<TaskId, TaskId>> waits) {
  std::vector<std::pair<TaskId, TaskId>> pairs(waits.begin(), waits.end());
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) pairs.emplace_back(task, next);
  }
  auto all = Csr<TaskId, TaskId>::from_pairs(plan.task_count(), pairs);
  all.sort_and_unique_rows();
  return all;
}

// Of those that could come next, the one that stood first. Shorter than all tasks if some wait for
// each other.
std::vector<std::uint32_t> earliest_first(const Csr<TaskId, TaskId>& successors) {
  IdVector<TaskId, std::uint32_t> waits_for(successors.rows(), 0);
  for (std::size_t i = 0; i < successors.rows(); ++i) {
    for (TaskId next : successors[TaskId(i)]) ++waits_for[next];
  }
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> open;
  for (std::uint32_t i = 0; i < successors.rows(); ++i) {
    if (waits_for[TaskId(i)] == 0) open.push(i);
  }
  std::vector<std::uint32_t> order;
  order.reserve(successors.rows());
  while (!open.empty()) {
    order.push_back(open.top());
    open.pop();
    for (TaskId next : successors[TaskId(order.back())]) {
      if (--waits_for[next] == 0) open.push(next.value());
    }
  }
  return order;
}

}  // namespace

Plan with_late_waits(Plan plan, std::span<const std::pair<TaskId, TaskId>> waits,
                     std::vector<EmittedAgain>& again) {
  if (waits.empty()) return plan;
  const Csr<TaskId, TaskId> successors = all_successors(plan, waits);
  const std::vector<std::uint32_t> order = earliest_first(successors);
  if (order.size() < plan.task_count()) return plan;
  std::vector<std::uint32_t> place(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  permute_tasks(plan, order);
  plan.holds = permuted(plan.holds, order);
  Csr<TaskId, TaskId> renamed;
  plan.predecessors.assign(order.size(), 0);
  std::vector<TaskId> next;
  for (std::uint32_t task : order) {
    next.clear();
    for (TaskId one : successors[TaskId(task)]) next.emplace_back(place[one.value()]);
    std::ranges::sort(next);
    for (TaskId one : next) ++plan.predecessors[one];
    renamed.push_row(next);
  }
  plan.successors = std::move(renamed);
  std::vector<EmittedAgain> apart;  // instances need not follow one another any more
  for (const EmittedAgain& one : again) {
    for (std::uint32_t i = 0; i < one.count; ++i) {
      apart.push_back({TaskId(place[one.task.value() + i]), 1, one.reader});
    }
  }
  again = std::move(apart);
  return plan;
}

}  // namespace heterog::compiler
