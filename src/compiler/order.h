// The rank of every task, and the priority by which tasks that could start are chosen (decision 8).
#pragma once

#include <span>

#include "compiler/plan.h"
#include "decide/strategy.h"

namespace heterog::compiler {

// rank(o) = p(o) + max over successors of rank (HeteroG §4.2). An overhead has the rank of the most
// urgent task that waits with it: by its own it would wait until nothing else is left to do.
//
// Priorities follow ranks: the position in (rank descending, op, kind, device, peer, begin,
// tensor).
void set_ranks(Plan& plan);

// Priorities by queued ranks (OrderPolicy::kRankQueued), ranks set. A rank takes every link for
// free at any time, so that a gradient whose all-reduce waits behind a hundred others ranks as low
// as the last of them. The queued rank is how long before the end of the step a task starts in a
// schedule that is laid out from the end: task by task, the one whose longest path from the start
// is longest first, each as late as its successors and the links and channels that it holds allow;
// of these each serves one task at a time, and what is laid out later goes before. On streams tasks
// do not queue: there all that is left would rank alike, and the chain that feeds the links is what
// matters. So what becomes available early and has a long queue behind it goes early (as Jackson's
// rule has it for one machine with heads and tails).
//
// Pushes then share out the places that they have among themselves anew. By urgency alone all
// devices push to the same server at the same time, and other links are idle. Instead, the pushes
// between any two devices come in the order of their urgency, and all pairs get on alike: next is
// the push of the pair of which the smallest part of its time has been placed.
void set_queued_priorities(Plan& plan);

// Priorities as a planner gives them (OrderPolicy::kPriority), right after set_ranks: the position
// in (priority descending, rank descending, …). Tasks that no op stands for take the priority of
// whom they serve: a transfer or merge that of its most urgent reader; a push, sum or collective
// that of the most urgent of its producers; an overhead that of what it belongs to. Updates and
// pulls that are not named come last.
void set_priorities(Plan& plan, std::span<const decide::OpPriority> priorities);

// Ranks, and the priorities of an order; of kPriority those that are given.
void set_order(Plan& plan, decide::OrderPolicy order,
               std::span<const decide::OpPriority> priorities = {});

}  // namespace heterog::compiler
