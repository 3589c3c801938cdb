// Rounds of levelling, each judged by the oracle.
#include "search/starts/settle.h"

#include <algorithm>
#include <vector>

#include "decide/lost_servers.h"
#include "search/moves/rebalance.h"

namespace heterog::search {

namespace {

// Every set of several devices levelled by its part of the computation, times `damping`: together
// the sets make up what their devices are apart.
decide::Strategy leveled(const cost::Problem& problem, const space::GroupSummaries& groups,
                         const Incumbent& from, double damping) {
  const std::vector<Replicas> shares = distinct_replicas(from.strategy);
  std::vector<double> seconds(shares.size(), 0.0);
  double total = 0;
  for (GroupId group : id_range<GroupId>(groups.size())) {
    const Replicas& replicas = decision_of(from.strategy, group).replicas;
    if (replicas.size() < 2) continue;
    const auto share = std::ranges::find(shares, replicas) - shares.begin();
    seconds[static_cast<std::size_t>(share)] += groups[group].seconds;
    total += groups[group].seconds;
  }
  Move move;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (seconds[i] <= 0) continue;
    move.reweigh.emplace_back(
        shares[i], level(problem, groups, from, shares[i], damping * seconds[i] / total));
  }
  decide::Strategy next = apply(from.strategy, move);
  // A device whose samples have all gone to others holds no parameters that it might serve.
  next.sync = decide::without_lost_servers(problem, next);
  return next;
}

}  // namespace

Tried settle(BatchEvaluator& evaluator, const space::GroupSummaries& groups, const Tried& start,
             int rounds) {
  // Two strengths at once, for two cores; the one that moves most comes first.
  constexpr double kFirst = 0.9, kLeast = 0.2;
  Tried best = start;
  Incumbent from{start.strategy, evaluator.evaluate(start.strategy)};
  double damping = kFirst;
  for (int round = 0; round < rounds && damping > kLeast; ++round) {
    if (evaluator.spent() || evaluator.evaluations_left() < 2) break;
    if (from.measured.busy.empty()) break;  // an oracle that does not know
    std::vector<decide::Strategy> next;
    std::vector<decide::Strategy> strategies;
    for (const double strength : {damping, damping / 2}) {
      next.push_back(leveled(evaluator.problem(), groups, from, strength));
      strategies.push_back(in_one_spelling(next.back()));
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
