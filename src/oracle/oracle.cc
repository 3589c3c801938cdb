// From step and peaks to a verdict.
#include "oracle/oracle.h"

#include <algorithm>
#include <cmath>

namespace heterog::oracle {

double reward(Nanoseconds step, bool feasible) {
  return -std::sqrt(to_seconds(step)) * (feasible ? 1 : 10);
}

bool better(const Evaluation& a, const Evaluation& b) {
  if (a.feasible != b.feasible) return a.feasible;
  if (a.missing_bytes != b.missing_bytes) return a.missing_bytes < b.missing_bytes;
  return a.step < b.step;
}

std::vector<Measured> Oracle::measure_rounds(const decide::Strategy& strategy) {
  std::vector<decide::Strategy> rounds;
  for (int round = 0; round <= strategy.order_rounds; ++round) {
    rounds.push_back(strategy);
    rounds.back().order_rounds = round;
  }
  return measure(rounds);
}

Measured judge(const cost::Problem& problem, Nanoseconds step,
               IdVector<DeviceId, Bytes> peak_bytes) {
  EXPECT(peak_bytes.size() == problem.cluster->place_count());
  Evaluation evaluation{.step = step};
  for (DeviceId device : problem.cluster->place_ids()) {
    const Bytes over = peak_bytes[device] - problem.cluster->device(device).memory_bytes;
    evaluation.missing_bytes += std::max<Bytes>(0, over);
  }
  evaluation.feasible = evaluation.missing_bytes == 0;
  evaluation.reward = reward(step, evaluation.feasible);
  return {evaluation, std::move(peak_bytes)};
}

}  // namespace heterog::oracle
