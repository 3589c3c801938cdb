// Teacher: the best plan that a search finds for a case, in the policy's own actions, as an example
// to imitate.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "learn/reinforce/case.h"

namespace heterog::learn {

// How good a strategy of these actions is.
using Judge = std::function<search::Evaluation(const Actions&)>;
// In the order, with the buckets and in the micro-batches of a plan. Case and evaluator have to
// outlive it.
Judge judge_like(const Case& c, const decide::Strategy& like, oracle::BatchEvaluator& evaluator);

// The same, or one action for all groups on at least half of the devices where that is better:
// shares of a plan's own are those of no action, so that what is nearest to them may be worse. Then
// without differences between neighbouring groups that gain nothing, as searches leave them: while
// a stretch of groups of one action can take the action of a neighbour and the step gets no longer,
// or by half a hundredth at most in all, it does. The stretches that count least come first. Asks
// for some hundreds of evaluations.
Actions simplify(const Case& c, Actions actions, oracle::BatchEvaluator& evaluator,
                 const Judge& judge);

// The best plan of a search over so many evaluations, or of one shot if these are more, drawn by
// `rng`, each group with the action nearest to what the plan says of it, simplified. Nothing if
// nothing fits. `stopped` is asked before each evaluation: once it is true, this throws; empty:
// never.
std::optional<Lesson> teach(const Case& c, std::int64_t evaluations, Rng rng,
                            std::function<bool()> stopped = {});

}  // namespace heterog::learn
