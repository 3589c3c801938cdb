// Simulates for the memory, and runs for the step.
#include "tune/trial_oracle.h"

#include <utility>

#include "sim/improved_order.h"

namespace heterog::tune {

TrialOracle::TrialOracle(std::shared_ptr<const cost::Problem> problem, Measures measures,
                         const compiler::CompileOptions& how,
                         std::function<void(const TriedPlan&)> tried)
    : problem_(std::move(problem)),
      measures_(std::move(measures)),
      how_(how),
      tried_(std::move(tried)) {}

std::vector<oracle::Measured> TrialOracle::measure(std::span<const decide::Strategy> strategies) {
  std::vector<oracle::Measured> answers;
  for (const decide::Strategy& strategy : strategies) {
    const sim::Simulated simulated =
        sim::simulated_in_order(strategy, compiler::compile(*problem_, strategy, how_));
    const sim::SimResult& result = simulated.result;
    answers.push_back(oracle::judge(*problem_, result.step, result.peak_bytes));
    if (!answers.back().evaluation.feasible) continue;
    const double seconds = measures_(problem_, strategy).seconds;
    answers.back() = oracle::judge(*problem_, to_nanoseconds(seconds), result.peak_bytes);
    if (tried_) tried_({strategy, to_seconds(result.step), seconds});
  }
  return answers;
}

}  // namespace heterog::tune
