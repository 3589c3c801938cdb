// How much later each task of a simulated step could end without making the step longer.
#pragma once

#include "compiler/plan.h"
#include "sim/simulator.h"

namespace heterog::sim {

// Of each task, if it alone began that much later and all others as late as that makes them: what
// waits for its result, and what comes after it on the resources that it holds, in the order of
// this step. Every task takes as long as it did. 0: on a critical path. In nanoseconds, ≥ 0; needs
// a result of this plan with its timeline.
IdVector<TaskId, Nanoseconds> slacks(const compiler::Plan& plan, const SimResult& result);

}  // namespace heterog::sim
