// Cuts as they are simulated, one after the other, within a budget.
#pragma once

#include <deque>
#include <vector>

#include "search/pipeline/cuts.h"
#include "search/planner.h"

namespace heterog::search {

// Pipelines that were simulated.
struct TriedPipelines {
  struct One {
    const Cut* cut = nullptr;  // of `pool`, `in_fewer` or `folded`
    decide::Strategy strategy;
    Evaluation evaluation;
    bool tied_together = false;  // Staging::tied_together
  };
  CutPool pool;
  std::vector<Cut> in_fewer{};  // CutPool::in_fewer()
  std::deque<Cut> folded{};     // fold()
  std::vector<One> all{};
  bool in_passes = false;  // what was simulated is the best of many more in passes of layers
};

// Simulates cuts of `tried.pool`, and adds them to `tried.all`; at least one whatever the budget.
class Trials {
 public:
  Trials(BatchEvaluator& evaluator, TriedPipelines& tried) : evaluator_(evaluator), tried_(tried) {}

  // All that could be faster than what has been found; the shortest step of these in seconds.
  double simulate(const std::vector<const Cut*>& given, const Staging& how);

  // Seconds; kNoStep where there is none.
  double shortest_that_fits() const { return shortest(true); }
  double shortest() const { return shortest(false); }

  // Of the shortest of all, whether it fits or not.
  bool tied_together() const;

  // But for those that were simulated.
  std::vector<const Cut*> unknown(std::vector<const Cut*> cuts) const;
  // The best of all, so many at most, and none that other turns do not bring to the front.
  std::vector<const Cut*> best(std::size_t count) const;
  // Of these, one at least of which was simulated.
  const Cut* best_of(const std::vector<const Cut*>& cuts) const;
  // Those of the shortest steps, whether they fit or not.
  std::vector<const Cut*> shortest_steps(std::size_t count) const;
  // The cuts that were simulated fastest, so many of different lines or numbers of stages.
  std::vector<const Cut*> fastest(std::size_t count) const;
  // Those of the best in other numbers of micro-batches, but for what was simulated.
  std::vector<const Cut*> alike(const std::vector<const Cut*>& cuts, double seconds,
                                const PipelineLimits& limits = {}) const;

 private:
  void simulate_all(const std::vector<const Cut*>& chosen, const Staging& how);
  double shortest(bool that_fits) const;

  BatchEvaluator& evaluator_;
  TriedPipelines& tried_;
};

}  // namespace heterog::search
