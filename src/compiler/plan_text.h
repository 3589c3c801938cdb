// Text and DOT forms of a compiled plan, for eyes and golden files.
#pragma once

#include <string>

#include "compiler/plan.h"
#include "cost/problem.h"

namespace heterog::compiler {

// The subject of a task: what is moved, summed or updated ("conv.weight", "conv.weight and 11
// more"), or the op.
std::string task_subject(const Plan& plan, const graph::ModelGraph& graph, TaskId task);

// One line per task, in order of id: "t12 compute addmm@v100/gpu0 [0,24) 1.250 ms <- t3 t9".
std::string plan_text(const Plan& plan, const cost::Problem& problem);
std::string plan_dot(const Plan& plan, const cost::Problem& problem);

}  // namespace heterog::compiler
