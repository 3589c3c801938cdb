// Overhead: the compute time that devices lose by moving bytes themselves.
#pragma once

#include "cluster/cluster.h"
#include "compiler/plan_builder.h"
#include "cost/problem.h"

namespace heterog::compiler {

// After all other tasks are there: for every transfer and collective a task on the compute stream
// of each end that has an overhead (Device), which can go once the bytes have been moved. That the
// processor gives its time to both at once is a matter of the operating system; here it does one
// after the other, and takes as long.
void add_overheads(const cost::Problem& problem, PlanBuilder& builder);

}  // namespace heterog::compiler
