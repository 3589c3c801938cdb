// Compile, simulate, reward.
#include "planner/evaluator.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heterog::planner {

double reward(Nanoseconds step, bool feasible) {
  return -std::sqrt(to_seconds(step)) * (feasible ? 1 : 10);
}

bool better(const Evaluation& a, const Evaluation& b) {
  if (a.feasible != b.feasible) return a.feasible;
  if (a.missing_bytes != b.missing_bytes) return a.missing_bytes < b.missing_bytes;
  return a.step < b.step;
}

Evaluation Evaluator::evaluate(const compiler::Strategy& strategy) {
  plan_ = compiler::compile(problem_, strategy, options_, std::move(plan_));
  const sim::SimResult& result = simulator_.simulate(plan_, strategy.order);
  ++evaluations_;
  last_peaks_ = result.peak_bytes;
  Evaluation evaluation{.step = result.step, .feasible = result.feasible()};
  for (DeviceId device : id_range<DeviceId>(plan_.device_count)) {
    evaluation.missing_bytes +=
        std::max<Bytes>(0, result.peak_bytes[device] - plan_.capacity[device]);
  }
  evaluation.reward = reward(evaluation.step, evaluation.feasible);
  return evaluation;
}

}  // namespace heterog::planner
