// What searches have in common: where they begin, and how long they go on where nobody says.
#pragma once

#include <cstdint>
#include <vector>

#include "search/planner.h"
#include "search/starts/memory_fill.h"

namespace heterog::search {

// For searches that stop when their evaluator's budget is spent.
inline constexpr std::int64_t kUnbounded = std::int64_t{1} << 40;
// So many rounds in which nothing new was proposed say that there is hardly anything new.
inline constexpr int kStaleRounds = 64;

// Whether one evaluation takes tens of milliseconds, as on dozens of devices: whoever searches then
// tries less before it climbs.
bool evaluations_are_costly(const cost::Problem& problem);
// Whether there is hardly any left to climb with in one shot, as on hundreds of devices: then moves
// of all groups together get further than others (docs/search.md, "Large clusters").
bool evaluations_are_few(const cost::Problem& problem);
// So many that searches of graphs and clusters of any size take about the same time.
std::int64_t one_shot_evaluations(const cost::Problem& problem);
// How many plans are simulated in about so many seconds on two cores; at least 1.
std::int64_t evaluations_in(const cost::Problem& problem, double seconds);
// The context's budget or, if it has none, that of one shot.
Budget budget_or_one_shot(const PlannerContext& context);

// Whether gradients of any unit are all-reduced.
bool sums_by_all_reduce(const decide::Strategy& strategy);

// The strategy in every order that is searched and, where it has all-reduces, with and without
// Horovod's buckets; not as it is.
std::vector<decide::Strategy> in_other_schedules(const decide::Strategy& strategy);

// The best baseline or, where none fits, the best filling of memory.
Tried best_start(BatchEvaluator& evaluator);

}  // namespace heterog::search
