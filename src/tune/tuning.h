// The loop of `heterog tune`: plan, measure, fit, plan again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/drift.h"
#include "tune/fitted_costs.h"
#include "tune/plan_again.h"

namespace heterog::tune {

struct Round {
  Proposal planned;
  decide::Strategy ran;  // the same, with what the compiler was left to choose (servers) as it was
  double measured_seconds = 0;
  // Over the plan that was kept until then, whose step is the measured one or, if shorter, that
  // predicted by the same costs: (theirs − ours) / ours. 0 in the first round.
  double predicted_gain = 0;
  // The tasks of one kind whose measured time, added up, is farthest from what was planned.
  measure::Drift off;
};

struct Tuned {
  std::vector<Round> rounds;
  std::size_t kept = 0;  // of them, the one whose step was measured to be the shortest
  FittedCosts fitted;    // to all of them
  // Whether it ended since no new plan is predicted to gain enough; and what the best one would.
  bool settled = false;
  double next_gain = 0;

  const Round& kept_round() const { return rounds[kept]; }
  // (first − kept) / kept, measured.
  double gain() const {
    return rounds.front().measured_seconds / kept_round().measured_seconds - 1;
  }
};

// Plans with these costs; `kept` as of plan_again().
using Plans = std::function<Proposals(const cost::Problem& costs, const decide::Strategy* kept)>;
// Runs a plan of these costs. What it throws ends the loop and reaches the caller.
using Measures = std::function<Trial(const std::shared_ptr<const cost::Problem>& costs,
                                     const decide::Strategy& strategy)>;
struct TuneOptions {
  std::int64_t rounds = 5;                      // at most; of each, one plan is measured
  double least_gain = 0.01;                     // that a new plan has to promise
  std::vector<cost::ProfileSource> given = {};  // what `believed` has costs of
};

// The first round plans with `believed`, each other with costs fitted to all rounds before it
// (fitted_costs.h). It ends after `rounds`, or when no plan that was not measured yet promises
// least_gain over the kept one. `after_round` is called with all that is known by then, after each
// round; it may throw too. Same callables, same result.
Tuned tune(const std::shared_ptr<const cost::Problem>& believed, const Plans& plans,
           const Measures& measures, const TuneOptions& options,
           const std::function<void(const Tuned& so_far)>& after_round = {});

}  // namespace heterog::tune
