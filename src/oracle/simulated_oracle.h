// The oracle of planning: every strategy compiled and simulated, many at a time on all cores.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "oracle/evaluator.h"

namespace heterog::oracle {

// Problem and threads have to outlive it. Answers do not depend on the number of threads. `stopped`
// is asked before each strategy, by any thread: once it is true, measure() throws; empty: never.
class SimulatedOracle final : public Oracle {
 public:
  SimulatedOracle(const cost::Problem& problem, ThreadPool& threads,
                  compiler::CompileOptions options = {}, std::function<bool()> stopped = {});
  std::vector<Measured> measure(std::span<const decide::Strategy> strategies) override;
  std::vector<Measured> measure_within(std::span<const decide::Strategy> strategies,
                                       Nanoseconds longest) override;
  std::vector<Measured> measure_rounds(const decide::Strategy& strategy) override;
  void for_each(std::size_t n, const std::function<void(std::size_t i)>& body) override;
  std::unique_ptr<Oracle> of(const cost::Problem& other) override {
    return std::make_unique<SimulatedOracle>(other, threads_, options_, stopped_);
  }
  const cost::Problem& problem() const override { return problem_; }

 private:
  const cost::Problem& problem_;
  ThreadPool& threads_;
  compiler::CompileOptions options_;
  const std::function<bool()> stopped_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;  // one per worker
};

}  // namespace heterog::oracle
