// What planners and the policy ask for the cost of a strategy.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::oracle {

struct Evaluation {
  Nanoseconds step = 0;
  bool feasible = false;
  Bytes missing_bytes = 0;  // summed over devices; 0 if feasible
  double reward = 0;
};

// R = −√T, T in seconds; ten times R when memory overflows (HeteroG §4.1.3).
double reward(Nanoseconds step, bool feasible);

// Feasible before infeasible, then less missing memory, then the shorter step.
bool better(const Evaluation& a, const Evaluation& b);

// An evaluation, and what is behind it.
struct Measured {
  Evaluation evaluation;
  IdVector<DeviceId, Bytes> peak_bytes;
  // How long each device computes in the step. Empty from an oracle that does not know.
  IdVector<DeviceId, Nanoseconds> busy;
  // Of the plan that was simulated, which may be of one device of each class.
  std::size_t tasks = 0;
  // By measure_within(): the step is a bound from below, and nothing else is known.
  bool given_up = false;
};

// The verdict on a step of this length with these peaks: what is above a device's memory is
// missing.
Measured judge(const cost::Problem& problem, Nanoseconds step,
               IdVector<DeviceId, Bytes> peak_bytes);

// Says what strategies cost: the simulator (SimulatedOracle), or whatever else can tell step and
// memory of a strategy, such as runs of it or a learned model. Planners see this interface alone:
//
//   strategies --measure()--> step, peaks of memory --judge()--> evaluation, for each
//
// One strategy that is handed over is one evaluation; BatchEvaluator, through which planners ask,
// hands over every distinct one once and keeps their budget.
class Oracle {
 public:
  virtual ~Oracle() = default;
  // Parallel to `strategies`. An answer depends on its strategy alone, not on what was asked before
  // or beside it. Throws an input error for a strategy that does not fit the problem.
  virtual std::vector<Measured> measure(std::span<const decide::Strategy> strategies) = 0;
  // The same, but that what provably takes longer than `longest` may be given up.
  virtual std::vector<Measured> measure_within(std::span<const decide::Strategy> strategies,
                                               Nanoseconds /*longest*/) {
    return measure(strategies);
  }
  // What the strategy comes to in none, in 1, … in all rounds of its order
  // (Strategy::order_rounds), in one go where the oracle can. Fewer where all that follow would be
  // as the last. Several may be asked at a time, by for_each().
  virtual std::vector<Measured> measure_rounds(const decide::Strategy& strategy);
  // Calls body(0) … body(n − 1), beside each other where the oracle has threads, which whoever
  // prepares strategies may use too. Results must depend on i alone.
  virtual void for_each(std::size_t n, const std::function<void(std::size_t i)>& body) {
    for (std::size_t i = 0; i < n; ++i) body(i);
  }
  // One like it for another problem, which has to outlive it. Null where there is none.
  virtual std::unique_ptr<Oracle> of(const cost::Problem& /*other*/) { return nullptr; }
  // What the strategies are for.
  virtual const cost::Problem& problem() const = 0;
};

}  // namespace heterog::oracle
