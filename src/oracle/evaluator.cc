// Compile, simulate, judge.
#include "oracle/evaluator.h"

#include <utility>

#include "oracle/improve_order.h"

namespace heterog::oracle {

Measured Evaluator::measure(const compiler::Strategy& strategy) {
  plan_ = compiler::compile(problem_, strategy, options_, std::move(plan_));
  const sim::SimResult& result = simulator_.simulate(plan_, strategy.order);
  Measured measured = judge(problem_, result.step, result.peak_bytes);
  measured.busy = result.device_busy;
  EXPECT(measured.evaluation.feasible == result.feasible());
  return measured;
}

std::vector<Measured> Evaluator::measure(std::span<const compiler::Strategy> strategies) {
  std::vector<Measured> measured;
  for (const compiler::Strategy& strategy : strategies) measured.push_back(measure(strategy));
  return measured;
}

std::optional<BetterOrder> Evaluator::improve_order(const compiler::Strategy& strategy,
                                                    int rounds) {
  return oracle::improve_order(problem_, strategy, options_, rounds);
}

}  // namespace heterog::oracle
