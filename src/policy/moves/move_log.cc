// Walks of one problem.
#include "policy/moves/move_log.h"

#include <algorithm>
#include <utility>

#include "oracle/batch_evaluator.h"
#include "planner/baselines.h"
#include "planner/estimated_layouts.h"
#include "planner/kind_chooser.h"
#include "planner/scorer/move_features.h"
#include "planner/settle.h"
#include "planner/starts.h"

namespace heterog::policy {

namespace {

using planner::DrawnMove;
using planner::Incumbent;
using planner::MoveKind;

constexpr std::int64_t kRound = 16;
constexpr int kWalks = 3;

// A start that a search might have: a baseline or an estimated layout, as it is or settled.
compiler::Strategy draw_start(oracle::BatchEvaluator& evaluator,
                              const space::GroupSummaries& groups, Rng& rng) {
  const cost::Problem& problem = evaluator.problem();
  std::vector<compiler::Strategy> starts;
  if (rng.below(2) == 0 && !planner::evaluations_are_costly(problem)) {
    starts = planner::estimated_layouts(problem);
  } else if (rng.below(2) == 0) {
    starts = {planner::best_start(evaluator).strategy};
  } else {
    for (planner::NamedStrategy& baseline : planner::baseline_strategies(problem)) {
      starts.push_back(std::move(baseline.strategy));
    }
  }
  planner::Tried start{planner::to_plain(problem, starts[rng.below(starts.size())]), {}};
  start.evaluation = evaluator.evaluate(start.strategy).evaluation;
  if (rng.below(2) == 0) start = planner::settle(evaluator, groups, start, 4);
  return start.strategy;
}

class Walk {
 public:
  Walk(oracle::BatchEvaluator& evaluator, Rng& rng, MoveLog& log)
      : evaluator_(evaluator),
        rng_(rng),
        problem_(static_cast<std::int32_t>(log.names.size() - 1)),
        log_(log),
        maker_(evaluator.problem()),
        estimates_(evaluator.problem()) {}

  void run(const compiler::Strategy& start, std::int64_t end) {
    Incumbent from{planner::to_candidate(start), evaluator_.evaluate(start)};
    planner::KindChooser kinds;
    for (int stale = 0; evaluator_.evaluations() < end && stale < planner::kStaleRounds;) {
      const std::int64_t before = evaluator_.evaluations();
      step(from, kinds);
      stale = evaluator_.evaluations() == before ? stale + 1 : 0;
    }
  }

 private:
  void step(Incumbent& from, planner::KindChooser& kinds) {
    std::vector<DrawnMove> moves;
    std::vector<compiler::Strategy> strategies;
    std::vector<Incumbent> next;
    for (std::int64_t i = 0; i < kRound; ++i) {
      const MoveKind kind = kinds.draw(rng_);
      moves.push_back({maker_.propose(from, kind, rng_), kind, kinds.weight(kind)});
      next.push_back({planner::apply(from.candidate, moves.back().move), {}});
      strategies.push_back(planner::to_strategy(next.back().candidate));
    }
    const std::vector<oracle::Measured> measured = evaluator_.evaluate(strategies);
    const std::vector<float> rows = planner::move_features(estimates_, from, moves);
    log_.features.insert(log_.features.end(), rows.begin(), rows.end());
    const std::int32_t round = log_.rounds.empty() ? 0 : log_.rounds.back() + 1;
    const oracle::Evaluation now = from.measured.evaluation;
    std::vector<std::size_t> helpful, harmless;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const double part = gain(now, measured[i].evaluation);
      next[i].measured = measured[i];
      log_.gains.push_back(static_cast<float>(part));
      log_.rounds.push_back(round);
      log_.problems.push_back(problem_);
      kinds.learn(moves[i].kind, part > 0);
      if (part > 0) helpful.push_back(i);
      if (part <= 0 && part > -0.01) harmless.push_back(i);
    }
    go_on(from, moves, next, helpful, harmless);
  }

  void go_on(Incumbent& from, const std::vector<DrawnMove>& moves, std::vector<Incumbent>& next,
             std::vector<std::size_t>& helpful, const std::vector<std::size_t>& harmless) {
    if (helpful.empty()) {
      if (!harmless.empty() && rng_.below(4) == 0) {
        from = std::move(next[harmless[rng_.below(harmless.size())]]);
      }
      return;
    }
    std::ranges::stable_sort(helpful, [&](std::size_t a, std::size_t b) {
      return oracle::better(next[a].measured.evaluation, next[b].measured.evaluation);
    });
    // Searches take the best, the first that helps, or all of them together.
    const std::uint64_t way = rng_.below(3);
    if (way < 2) {
      from = std::move(next[helpful[way == 0 ? 0 : rng_.below(helpful.size())]]);
      return;
    }
    Incumbent all = from;
    for (const std::size_t i : helpful)
      all.candidate = planner::apply(all.candidate, moves[i].move);
    all.measured = evaluator_.evaluate(planner::to_strategy(all.candidate));
    Incumbent& best = next[helpful.front()];
    from = oracle::better(all.measured.evaluation, best.measured.evaluation) ? std::move(all)
                                                                             : std::move(best);
  }

  oracle::BatchEvaluator& evaluator_;
  Rng& rng_;
  const std::int32_t problem_;
  MoveLog& log_;
  const planner::MoveMaker maker_;
  planner::MoveEstimates estimates_;
};

}  // namespace

double gain(const oracle::Evaluation& now, const oracle::Evaluation& next) {
  if (now.feasible != next.feasible) return next.feasible ? 1 : -1;
  if (now.missing_bytes != next.missing_bytes) {
    const auto had = static_cast<double>(now.missing_bytes);
    return std::clamp((had - static_cast<double>(next.missing_bytes)) / had, -1.0, 1.0);
  }
  return std::clamp(to_seconds(now.step - next.step) / to_seconds(now.step), -1.0, 1.0);
}

void log_moves(oracle::Oracle& oracle, std::int64_t evaluations, Rng rng, const std::string& name,
               MoveLog& log) {
  log.names.push_back(name);
  oracle::BatchEvaluator evaluator(oracle);
  const space::GroupSummaries groups = space::summarize_groups(evaluator.problem());
  Walk walk(evaluator, rng, log);
  for (int i = 1; i <= kWalks; ++i) {
    walk.run(draw_start(evaluator, groups, rng), evaluations * i / kWalks);
  }
}

}  // namespace heterog::policy
