// The stages of a portfolio, in the order in which they run (docs/search.md).
#pragma once

#include <cstdint>

#include "search/portfolio/search.h"

namespace heterog::search::portfolio {

// Data parallelism and single devices; in micro-batches where none of these fits. Whatever the
// budget. Notes each in `result.baselines`.
void try_baselines(Search& search);

// What is given, estimated layouts, fillings of memory. The best of each origin, baselines among
// them, are what is climbed from.
void add_starts(Search& search, std::vector<Start> tried);
void try_starts(Search& search);

// The name of starts in which forward passes run again.
inline constexpr const char* kRecomputed = "recomputed";

// Settles the shares of those that promise most, climbs, halves, and splits the synchronisation of
// the best.
void climb_starts(Search& search);

// Where nothing fits, or what fits waits for the network or for one device after another; moves of
// the best.
void try_pipelines(Search& search);
// Whether the best plan so far is so far ahead of this one that moves of it do not catch up.
bool far_behind(const Search& search, const Evaluation& one);
// Of all starts, of which there are some.
bool pipelines_lead(const Search& search);

// What is left of the budget, on the best start: annealing, then local search and kicks. Where
// pipelines are far ahead, on these, if there is a budget.
void improve(Search& search);

// In one shot, where plans are costly: how many of devices that are alike come on top.
std::int64_t plans_together(const cost::Problem& problem);

// Single operators, each on one device, once. They have units of their own, which no move of groups
// knows: they are no starts of climbing. The best is kept for improve_orders().
void try_placements(Search& search);

// Search moves on where a step gets shorter, and leaves behind what makes no difference: devices
// with an update of a tenth of a millisecond. What takes a little longer on fewer devices may take
// no longer in a better order.
void leave_devices_out(Search& search);
// How many plans that may simulate, of the context's whole budget.
std::int64_t tries_to_leave_out(const PlannerContext& context);

// The better order of what was found, and of a placement, which may be the better plan.
void improve_orders(Search& search);

// What was found, and plain data parallelism, with servers dealt to parameters by bytes and
// bandwidth; and, but where that makes more transfers than are simulated in a moment, with the rows
// of each parameter on several servers.
void choose_servers(Search& search);
// How many plans are kept back for that, of a budget of evaluations.
std::int64_t tries_of_servers(const PlannerContext& context);

}  // namespace heterog::search::portfolio
