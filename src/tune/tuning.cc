// Round after round, with all trials kept.
#include "tune/tuning.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "decide/layout.h"

namespace heterog::tune {
namespace {

// What the kept plan takes is predicted by the same costs, and known: the shorter of both counts.
double gain_over(double kept_measured, const oracle::Evaluation& kept,
                 const oracle::Evaluation& planned) {
  return std::min(kept_measured, to_seconds(kept.step)) / to_seconds(planned.step) - 1;
}

measure::Drift farthest_off(const std::vector<measure::Drift>& rows) {
  const auto off = [](const measure::Drift& row) {
    return std::abs(row.measured_seconds - row.predicted_seconds);
  };
  ENSURE(!rows.empty());
  return *std::ranges::max_element(rows, {}, off);
}

// The same with the servers that the compiler chooses by these costs: by others it would choose
// others, and the plan would not be the one that was measured.
decide::Strategy with_servers(const cost::Problem& costs, decide::Strategy strategy) {
  const decide::Layout layout = decide::lay_out(costs, strategy);
  for (const TensorId parameter : costs.graph->parameters()) {
    if (layout.home_of[parameter] == decide::Layout::kNoHome) continue;
    const decide::ParameterHome& home = layout.home(parameter);
    const bool served = home.method == decide::SyncMethod::kParameterServer &&
                        home.replicas.size() > 1 && !home.by_rows() && home.server.valid();
    if (!served) continue;
    const auto own = std::ranges::find(strategy.sync, parameter, &decide::ParameterSync::parameter);
    if (own == strategy.sync.end()) {
      strategy.sync.push_back(
          {.parameter = parameter, .method = home.method, .server = home.server, .servers = {}});
    } else if (own->servers.empty()) {
      own->server = home.server;
    }
  }
  return strategy;
}

// The first of them that was not measured yet and fits; null if there is none.
const Proposal* untried(const Proposals& proposals, const std::vector<Round>& rounds) {
  for (const Proposal& one : proposals.plans) {
    const bool tried = std::ranges::any_of(
        rounds, [&](const Round& round) { return round.planned.strategy == one.strategy; });
    if (!tried && one.evaluation.feasible) return &one;
  }
  return nullptr;
}

}  // namespace

Tuned tune(const std::shared_ptr<const cost::Problem>& believed, const Plans& plans,
           const Measures& measures, const TuneOptions& options,
           const std::function<void(const Tuned& so_far)>& after_round) {
  EXPECT(options.rounds >= 1);
  Tuned tuned;
  std::vector<Trial> trials;
  std::shared_ptr<const cost::Problem> costs = believed;
  while (std::ssize(tuned.rounds) < options.rounds) {
    Round round;
    if (tuned.rounds.empty()) {
      round.planned = plans(*costs, nullptr).plans.front();
    } else {
      const Proposals proposals = plans(*costs, &tuned.kept_round().planned.strategy);
      const Proposal* next = untried(proposals, tuned.rounds);
      tuned.next_gain =
          next ? gain_over(tuned.kept_round().measured_seconds, proposals.kept, next->evaluation)
               : 0;
      tuned.settled = tuned.next_gain < options.least_gain;
      if (tuned.settled) break;
      round.planned = *next;
      round.predicted_gain = tuned.next_gain;
    }
    round.ran = with_servers(*costs, round.planned.strategy);
    trials.push_back(measures(costs, round.ran));
    round.measured_seconds = trials.back().seconds;
    round.off = farthest_off(trials.back().drift);
    const bool shorter =
        tuned.rounds.empty() || round.measured_seconds < tuned.kept_round().measured_seconds;
    if (shorter) tuned.kept = tuned.rounds.size();
    tuned.rounds.push_back(std::move(round));
    tuned.fitted = fit_costs(*believed, options.given, trials);
    costs = tuned.fitted.problem;
    if (after_round) after_round(tuned);
  }
  return tuned;
}

}  // namespace heterog::tune
