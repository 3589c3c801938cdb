// Strategy → step time and memory: compile, simulate, judge. One evaluator per thread.
#pragma once

#include "compiler/compile.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "oracle/oracle.h"
#include "sim/simulator.h"

namespace heterog::oracle {

// Evaluates strategies, one after another: compiles one, simulates the plan, and judges step time
// and memory. The problem has to outlive it.
//
//   Evaluator evaluator(problem);
//   const Evaluation found = evaluator.evaluate(strategy);
//   if (better(found, best)) ...
//
//   strategy --compile_few()--> plan --simulator_--> step, peaks --judge()--> evaluation
//
// Where devices are alike the plan has one of each kind, and what is said is that of all.
// Both parts keep memory from call to call. Not for several threads; SimulatedOracle has one per
// worker.
class Evaluator final : public Oracle {
 public:
  explicit Evaluator(const cost::Problem& problem, compiler::CompileOptions options = {})
      : problem_(problem), options_(options) {}
  Measured measure(const decide::Strategy& strategy);
  // Gives up what its parameter servers make longer (compiler/serving_bound.h), before compiling.
  Measured measure_within(const decide::Strategy& strategy, Nanoseconds longest);
  Evaluation evaluate(const decide::Strategy& strategy) { return measure(strategy).evaluation; }
  std::vector<Measured> measure(std::span<const decide::Strategy> strategies) override;
  // Changes nothing here: several threads may ask.
  std::vector<Measured> measure_rounds(const decide::Strategy& strategy) override;
  std::unique_ptr<Oracle> of(const cost::Problem& other) override {
    return std::make_unique<Evaluator>(other, options_);
  }
  const cost::Problem& problem() const override { return problem_; }

 private:
  const cost::Problem& problem_;
  compiler::CompileOptions options_;
  compiler::PlanOfFew compiled_;  // the last one
  sim::Simulator simulator_;
};

}  // namespace heterog::oracle
