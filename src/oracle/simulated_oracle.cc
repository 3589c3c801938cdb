// Shares strategies out over the threads.
#include "oracle/simulated_oracle.h"

#include <limits>
#include <utility>

#include "base/check.h"

namespace heterog::oracle {

SimulatedOracle::SimulatedOracle(const cost::Problem& problem, ThreadPool& threads,
                                 compiler::CompileOptions options, std::function<bool()> stopped)
    : problem_(problem), threads_(threads), options_(options), stopped_(std::move(stopped)) {
  for (int worker = 0; worker < threads.threads(); ++worker) {
    evaluators_.push_back(std::make_unique<Evaluator>(problem, options));
  }
}

std::vector<Measured> SimulatedOracle::measure(std::span<const decide::Strategy> strategies) {
  return measure_within(strategies, std::numeric_limits<Nanoseconds>::max());
}

std::vector<Measured> SimulatedOracle::measure_within(std::span<const decide::Strategy> strategies,
                                                      Nanoseconds longest) {
  std::vector<Measured> measured(strategies.size());
  threads_.run(strategies.size(), [&](int worker, std::size_t i) {
    expect_not_stopped(stopped_);
    measured[i] = evaluators_[worker]->measure_within(strategies[i], longest);
  });
  return measured;
}

std::vector<Measured> SimulatedOracle::measure_rounds(const decide::Strategy& strategy) {
  expect_not_stopped(stopped_);
  return evaluators_.front()->measure_rounds(strategy);
}

void SimulatedOracle::for_each(std::size_t n, const std::function<void(std::size_t i)>& body) {
  threads_.run(n, [&](int /*worker*/, std::size_t i) {
    expect_not_stopped(stopped_);
    body(i);
  });
}

}  // namespace heterog::oracle
