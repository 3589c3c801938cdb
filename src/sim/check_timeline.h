// Proves a simulated step right from the plan and its timeline alone.
#pragma once

#include <string>
#include <vector>

#include "compiler/plan.h"
#include "sim/simulator.h"

namespace heterog::sim {

// Mistakes of a result that has its timeline, one sentence each and at most 20; empty: it is a
// schedule of the plan under decision 8. Shares no code with the event loop. Checked: durations and
// dependencies; no resource runs two tasks; no task waits while it could start (rank, fifo), nor
// behind one of lower priority; peaks of memory equal a replay; what devices and links did adds up.
//
// Tasks that take no time end and start others within one moment; where a moment has such a task,
// priorities are compared only among what it makes ready on its own compute stream, and the peak of
// memory is only known to lie between two replays.
std::vector<std::string> check_timeline(const compiler::Plan& plan, const SimResult& result,
                                        decide::OrderPolicy order);

}  // namespace heterog::sim
