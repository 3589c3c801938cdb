// Names of the parts of a plan and of its problem, as they are printed.
#pragma once

#include <string>

#include "compiler/plan.h"
#include "cost/problem.h"

namespace heterog::explain {

// "all-reduce mm_3", of the op concerned.
std::string task_name(const cost::Problem& problem, const compiler::Plan& plan, TaskId task);
// "forward", "backward" or "update" of an operator; the kind of any other task.
std::string task_phase(const cost::Problem& problem, const compiler::Plan& plan, TaskId task);
// "v100/gpu0", "v100/gpu0's collectives", "v100/nic.out", "the serial collectives".
std::string resource_name(const cost::Problem& problem, const compiler::Plan& plan,
                          ResourceId resource);
// "#3 encoder.layer.2": by what the group's operators have in common.
std::string group_name(const cost::Problem& problem, GroupId group);

}  // namespace heterog::explain
