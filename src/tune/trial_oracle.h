// The oracle that tries strategies out: each one that fits is run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "compiler/compile.h"
#include "oracle/oracle.h"
#include "tune/tuning.h"

namespace heterog::tune {

// What was run, and how long a step was thought to take.
struct TriedPlan {
  const decide::Strategy& strategy;
  double predicted_seconds = 0;
  double measured_seconds = 0;
};

// Steps are those that `measures` says. Memory is simulated, and a strategy that does not fit is
// not run: its step is simulated too. Answers are only as repeatable as runs are.
class TrialOracle final : public oracle::Oracle {
 public:
  // `tried`, if any, is called after each run.
  TrialOracle(std::shared_ptr<const cost::Problem> problem, Measures measures,
              const compiler::CompileOptions& how,
              std::function<void(const TriedPlan&)> tried = {});
  std::vector<oracle::Measured> measure(std::span<const decide::Strategy> strategies) override;
  const cost::Problem& problem() const override { return *problem_; }

 private:
  const std::shared_ptr<const cost::Problem> problem_;
  const Measures measures_;
  const compiler::CompileOptions how_;
  const std::function<void(const TriedPlan&)> tried_;
};

}  // namespace heterog::tune
