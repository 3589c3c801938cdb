// Compile, simulate, judge.
#include "oracle/evaluator.h"

#include <limits>
#include <utility>

#include "compiler/serving_bound.h"
#include "decide/check_strategy.h"
#include "decide/layout.h"
#include "sim/improved_order.h"

namespace heterog::oracle {

namespace {

// What was found for the places of a plan, for all places of the cluster.
template <class T>
IdVector<DeviceId, T> spread(const IdVector<DeviceId, T>& found,
                             const IdVector<DeviceId, DeviceId>& place_of) {
  if (place_of.empty()) return found;
  IdVector<DeviceId, T> all;
  all.reserve(place_of.size());
  for (DeviceId place : place_of) all.push_back(found[place]);
  return all;
}

Measured measured_of(const cost::Problem& problem, const compiler::PlanOfFew& compiled,
                     const sim::SimResult& result) {
  Measured measured = judge(problem, result.step, spread(result.peak_bytes, compiled.place_of));
  measured.busy = spread(result.device_busy, compiled.place_of);
  measured.tasks = compiled.plan.task_count();
  EXPECT(measured.evaluation.feasible == result.feasible());
  return measured;
}

}  // namespace

Measured Evaluator::measure(const decide::Strategy& strategy) {
  return measure_within(strategy, std::numeric_limits<Nanoseconds>::max());
}

Measured Evaluator::measure_within(const decide::Strategy& strategy, Nanoseconds longest) {
  decide::check_strategy(problem_, strategy, "strategy");
  const decide::Layout layout = decide::lay_out(problem_, strategy);
  if (longest < std::numeric_limits<Nanoseconds>::max()) {
    const Nanoseconds bound = compiler::serving_bound(problem_, layout);
    if (bound > longest) return {.evaluation = {.step = bound}, .given_up = true};
  }
  compiled_ =
      compiler::compile_few(problem_, strategy, layout, options_, std::move(compiled_.plan));
  return measured_of(problem_, compiled_,
                     sim::simulate_rounds(strategy, compiled_.plan, simulator_));
}

std::vector<Measured> Evaluator::measure(std::span<const decide::Strategy> strategies) {
  std::vector<Measured> measured;
  for (const decide::Strategy& strategy : strategies) measured.push_back(measure(strategy));
  return measured;
}

std::vector<Measured> Evaluator::measure_rounds(const decide::Strategy& strategy) {
  compiler::PlanOfFew compiled = compiler::compile_few(problem_, strategy, options_);
  sim::Simulator simulator;
  std::vector<Measured> measured;
  sim::simulate_rounds(strategy, compiled.plan, simulator, [&](const sim::SimResult& result) {
    measured.push_back(measured_of(problem_, compiled, result));
  });
  return measured;
}

}  // namespace heterog::oracle
