// Tasks of a plan in another order, with new ones among them.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan.h"

namespace heterog::compiler {

// Rows in the order of these tasks; those from the end of `rows` on are new, and empty.
template <class T>
Csr<TaskId, T> permuted(const Csr<TaskId, T>& rows, const std::vector<std::uint32_t>& order) {
  Csr<TaskId, T> made;
  made.reserve(order.size(), rows.size());
  for (std::uint32_t task : order) {
    if (task < rows.rows()) {
      made.push_row(rows[TaskId(task)]);
    } else {
      made.end_row();
    }
  }
  return made;
}

// `order`: the numbers that the tasks have now, in their new order; those from the last task on are
// new tasks of kind kTurn, of which nothing else is said. Holds, successors and what follows from
// them (predecessors, ranks, priorities) are left to the caller.
void permute_tasks(Plan& plan, const std::vector<std::uint32_t>& order);

}  // namespace heterog::compiler
