// A problem whose costs are not what planners believe: for planners that measure, and to see what
// others lose by wrong costs.
#pragma once

#include <cstdint>
#include <memory>

#include "cost/problem.h"

namespace heterog::cost {

struct HiddenCosts {
  std::uint64_t seed = 0;
  double spread = 0.2;  // standard deviation of the logarithms of the factors
  // Links of one bandwidth have one factor, so that machines that are alike stay so.
  bool links_by_kind = false;
};

// The same problem, with other times. Ops take exp(spread · z) times as long, half of the variance
// by class of operator and type of device (a cost model is wrong about a kind of kernel as a whole,
// which does not average out over a model), the other half by what the op is and does (its
// operator, FLOP and bytes), which the ops of equal layers have in common. Every link has
// exp(spread · z) times its bandwidth; latencies, caps of flows and memory stay. z are standard
// normal and depend on the seed and on what they are for alone.
//
// Groups and proportional replicas stay, so that a strategy means the same in both.
std::unique_ptr<const Problem> hidden_problem(const Problem& believed, const HiddenCosts& hidden);

}  // namespace heterog::cost
