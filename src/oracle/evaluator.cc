// Compile, simulate, judge.
#include "oracle/evaluator.h"

#include <utility>

#include "sim/improved_order.h"

namespace heterog::oracle {

Measured Evaluator::measure(const decide::Strategy& strategy) {
  plan_ = compiler::compile(problem_, strategy, options_, std::move(plan_));
  const sim::SimResult& result = sim::simulate_rounds(strategy, plan_, simulator_);
  Measured measured = judge(problem_, result.step, result.peak_bytes);
  measured.busy = result.device_busy;
  EXPECT(measured.evaluation.feasible == result.feasible());
  return measured;
}

std::vector<Measured> Evaluator::measure(std::span<const decide::Strategy> strategies) {
  std::vector<Measured> measured;
  for (const decide::Strategy& strategy : strategies) measured.push_back(measure(strategy));
  return measured;
}

std::vector<Measured> Evaluator::measure_rounds(const decide::Strategy& strategy) {
  compiler::Plan plan = compiler::compile(problem_, strategy, options_);
  sim::Simulator simulator;
  std::vector<Measured> measured;
  sim::simulate_rounds(strategy, plan, simulator, [&](const sim::SimResult& result) {
    measured.push_back(judge(problem_, result.step, result.peak_bytes));
    measured.back().busy = result.device_busy;
  });
  return measured;
}

}  // namespace heterog::oracle
