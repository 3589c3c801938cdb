// The turns that devices take strictly one after the other, as tasks that stand between them.
#pragma once

#include <span>

#include "compiler/emit/emitted_again.h"
#include "compiler/plan.h"
#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/strategy.h"

namespace heterog::compiler {

// Strategy::strict, as dependencies: between two turns of a device stands a task (kTurn) that waits
// for all of the earlier one, and for which all of the later one waits. So whoever simulates,
// checks or explains the plan knows nothing of turns. Tasks of a turn are those of ops that have
// turns (PassTurns), ops that run again for them and, on devices that recompute, what adds their
// gradients to those of earlier turns. In no turn is what adds up gradients of a parameter that
// several units read, of which those of other stages come when they are whole, and what else
// gathers, adds up or moves values.
//
// The tasks are numbered anew, in a topological order. Before ranks are set. Throws an input error
// that names the first turn that could never begin, where the pattern contradicts the dependencies.
Plan take_turns(const cost::Problem& problem, const decide::Strategy& strategy,
                const decide::Layout& layout, std::span<const EmittedAgain> again, Plan plan);

}  // namespace heterog::compiler
