// The rank of every task, and the priority by which tasks that could start are chosen (decision 8).
#pragma once

#include <span>

#include "compiler/plan.h"
#include "compiler/strategy.h"

namespace heterog::compiler {

// rank(o) = p(o) + max over successors of rank (HeteroG §4.2). An overhead has the rank of the most
// urgent task that waits with it: by its own it would wait until nothing else is left to do.
//
// Priorities follow ranks: the position in (rank descending, op, kind, device, peer, begin,
// tensor).
void set_ranks(Plan& plan);

// Priorities as a planner gives them (OrderPolicy::kPriority), ranks set: the position in
// (priority descending, rank descending, …). Tasks that no op stands for take the priority of whom
// they serve: a transfer or merge that of its most urgent reader; a push, sum or collective that of
// the most urgent of its producers; an overhead that of what it belongs to. Updates and pulls that
// are not named come last.
void set_priorities(Plan& plan, std::span<const OpPriority> priorities);

}  // namespace heterog::compiler
