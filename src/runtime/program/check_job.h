// Refuses plans and graphs that the runtime cannot run, or would not run as one device does.
#pragma once

#include <span>
#include <string>

#include "compiler/plan.h"
#include "cost/problem.h"

namespace heterog::runtime {

// Both throw an input error that begins with `source`.
// The dispatch sequence names every task once, after all that it waits for.
void check_dispatch(const compiler::Plan& plan, std::span<const TaskId> dispatch,
                    const std::string& source);
void check_runnable(const cost::Problem& problem, const std::string& source);

}  // namespace heterog::runtime
