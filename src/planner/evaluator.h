// Strategy → step time and reward: compile, simulate, reward. One evaluator per thread.
#pragma once

#include "compiler/compile.h"
#include "compiler/strategy.h"
#include "cost/problem.h"
#include "sim/simulator.h"

namespace heterog::planner {

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

// Evaluates strategies, one after another: compiles one, simulates the plan, and makes the reward
// of step time and memory. Search and training see only this. The problem has to outlive it.
//
//   Evaluator evaluator(problem);
//   const Evaluation found = evaluator.evaluate(strategy);
//   if (better(found, best)) ...
//
//   strategy --compile()--> plan --simulator_--> step, peaks --reward()--> evaluation
//
// Both parts keep memory from call to call. The result does not depend on what was evaluated
// before. Not for several threads; BatchEvaluator has one per worker.
class Evaluator {
 public:
  explicit Evaluator(const cost::Problem& problem, compiler::CompileOptions options = {})
      : problem_(problem), options_(options) {}
  Evaluation evaluate(const compiler::Strategy& strategy);
  // Of the strategy last evaluated: peak memory of each device.
  const IdVector<DeviceId, Bytes>& last_peaks() const { return last_peaks_; }
  std::int64_t evaluations() const { return evaluations_; }
  const cost::Problem& problem() const { return problem_; }

 private:
  const cost::Problem& problem_;
  compiler::CompileOptions options_;
  compiler::Plan plan_;  // the last one
  sim::Simulator simulator_;
  IdVector<DeviceId, Bytes> last_peaks_;
  std::int64_t evaluations_ = 0;
};

}  // namespace heterog::planner
