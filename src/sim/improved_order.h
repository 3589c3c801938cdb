// Orders that are improved by their own schedule, round by round (Strategy::order_rounds).
#pragma once

#include <functional>

#include "compiler/plan.h"
#include "decide/strategy.h"
#include "sim/simulator.h"

namespace heterog::sim {

// Simulates the compiled plan of a strategy in its order. Each of the strategy's order rounds makes
// priorities of the schedule before it (ForwardBackward) and simulates again; `plan` keeps those of
// the last round. The result is the simulator's until its next call, with its timeline if the
// strategy has rounds. O(tasks · log tasks) a round.
//
// `each`: is given the schedule of every round, round 0 the order without any. Rounds end early
// where one leaves all priorities as they are: those to come would too.
using EachRound = std::function<void(const SimResult&)>;
const SimResult& simulate_rounds(const decide::Strategy& strategy, compiler::Plan& plan,
                                 Simulator& simulator, const EachRound& each = {});

// With a simulator of its own, and the timeline.
Simulated simulated_in_order(const decide::Strategy& strategy, compiler::Plan plan);

// The same order of `plan`, with the priorities of its last round in place of rounds. For who
// changes durations and keeps the order.
decide::Strategy with_priorities_of_rounds(const decide::Strategy& strategy, compiler::Plan plan);

}  // namespace heterog::sim
