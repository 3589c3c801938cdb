// Rounds of levelling, each judged by the oracle.
#include "search/starts/settle.h"

#include <vector>

#include "search/moves/rebalance.h"

namespace heterog::search {

namespace {

// Every entry of several devices levelled by its part of the computation, times `damping`: together
// the entries make up what their devices are apart.
Candidate leveled(const cost::Problem& problem, const space::GroupSummaries& groups,
                  const Incumbent& from, double damping) {
  const Candidate& candidate = from.candidate;
  IdVector<ShareId, double> seconds(candidate.shares.size(), 0.0);
  double total = 0;
  for (GroupId group : id_range<GroupId>(groups.size())) {
    const ShareId share = candidate.share_of[group];
    if (candidate.shares[share].size() < 2) continue;
    seconds[share] += groups[group].seconds;
    total += groups[group].seconds;
  }
  Move move;
  for (ShareId share : id_range<ShareId>(candidate.shares.size())) {
    if (seconds[share] <= 0) continue;
    move.reweigh.emplace_back(candidate.shares[share], level(problem, groups, from, share,
                                                             damping * seconds[share] / total));
  }
  return apply(candidate, move);
}

}  // namespace

Tried settle(BatchEvaluator& evaluator, const space::GroupSummaries& groups, const Tried& start,
             int rounds) {
  // Two strengths at once, for two cores; the one that moves most comes first.
  constexpr double kFirst = 0.9, kLeast = 0.2;
  Tried best = start;
  Incumbent from{to_candidate(start.strategy), evaluator.evaluate(start.strategy)};
  double damping = kFirst;
  for (int round = 0; round < rounds && damping > kLeast; ++round) {
    if (evaluator.spent() || evaluator.evaluations_left() < 2) break;
    if (from.measured.busy.empty()) break;  // an oracle that does not know
    std::vector<Candidate> next;
    std::vector<decide::Strategy> strategies;
    for (const double strength : {damping, damping / 2}) {
      next.push_back(leveled(evaluator.problem(), groups, from, strength));
      strategies.push_back(to_strategy(next.back()));
    }
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    const std::size_t chosen = better(measured[1].evaluation, measured[0].evaluation) ? 1 : 0;
    if (!better(measured[chosen].evaluation, best.evaluation)) {
      damping /= 4;
      continue;
    }
    if (chosen == 1) damping /= 2;
    best = {strategies[chosen], measured[chosen].evaluation};
    from = {next[chosen], measured[chosen]};
  }
  return best;
}

}  // namespace heterog::search
