// The best of many strategies that are looked at one after another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "search/planner.h"

namespace heterog::search {

// What is the best so far; strategies are asked about a few at a time, to keep threads busy.
class BestSoFar {
 public:
  explicit BestSoFar(PlannerContext& context) : evaluator_(context.oracle, context.budget) {}

  const cost::Problem& problem() const { return evaluator_.problem(); }
  void ask(decide::Strategy strategy) {
    constexpr std::size_t kAtATime = 32;
    waiting_.push_back(std::move(strategy));
    ++asked_;
    if (waiting_.size() == kAtATime) flush();
  }
  void flush() {
    const auto left = static_cast<std::size_t>(std::max<std::int64_t>(
        found_ ? 0 : 1, evaluator_.spent() ? 0 : evaluator_.evaluations_left()));
    if (waiting_.size() > left) {
      waiting_.resize(left);
      complete_ = false;
    }
    const std::vector<Measured> measured = evaluator_.evaluate(waiting_);
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (found_ && !better(measured[i].evaluation, result_.evaluation)) continue;
      result_.strategy = std::move(waiting_[i]);
      result_.evaluation = measured[i].evaluation;
      found_ = true;
    }
    waiting_.clear();
  }
  // Whether the search is to end; it is not complete then.
  bool stops() {
    complete_ = complete_ && !evaluator_.spent();
    return !complete_;
  }
  // To be called by a search that excludes nearly everything, once in so many steps: who is told to
  // stop is so between two simulated plans, so it asks about the best once more.
  void step() {
    constexpr std::int64_t kSteps = 1 << 14;
    if (found_ && ++steps_ % kSteps == 0) evaluator_.oracle().measure({&result_.strategy, 1});
  }
  bool complete() const { return complete_; }
  std::int64_t asked() const { return asked_; }
  // Nothing that takes so long can be better.
  bool excludes(Nanoseconds least) const {
    return found_ && result_.evaluation.feasible && least >= result_.evaluation.step;
  }
  PlannerResult finish(std::string found_by) && {
    flush();
    result_.evaluations = evaluator_.evaluations();
    result_.found_by = std::move(found_by);
    return std::move(result_);
  }

 private:
  BatchEvaluator evaluator_;
  std::vector<decide::Strategy> waiting_;
  PlannerResult result_;
  bool found_ = false;
  bool complete_ = true;  // nothing was left out for want of budget
  std::int64_t asked_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace heterog::search
