// Tries the cheap baselines at one batch after the other.
#include "search/answers/what_fits.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "decide/micro_batches.h"
#include "oracle/batch_evaluator.h"
#include "search/starts/baselines.h"
#include "search/starts/recomputed.h"

namespace heterog::search {

namespace {

using decide::Strategy;

// More of them hold hardly less.
constexpr std::int64_t kMostMicroBatches = 64;

enum class Way : std::uint8_t { kWhole, kMicroBatches, kRecomputing };

// Each in blocks of both numbers.
void recompute_in_blocks(const cost::Problem& problem, std::vector<Strategy>& strategies,
                         std::vector<std::string>& names) {
  std::vector<Strategy> made;
  std::vector<std::string> made_names;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    for (Strategy& one : recomputed(problem, strategies[i])) {
      made.push_back(std::move(one));
      made_names.push_back(names[i]);
    }
  }
  strategies = std::move(made);
  names = std::move(made_names);
}

class Tries {
 public:
  Tries(const cost::Problem& problem, const graph::KnownBatches& known, const OtherBatches& others)
      : problem_(problem), known_(known), others_(others) {}

  // The batch itself where it fits in this way, else the largest that does.
  std::optional<Fit> best(Way way) const {
    if (way != Way::kWhole) {
      if (auto fit = at(problem_.batch, way)) return fit;
    }
    std::optional<Fit> best;
    std::int64_t fits = known_.smallest() - 1, too_large = problem_.batch;
    while (fits + 1 < too_large) {
      std::int64_t middle = fits + (too_large - fits) / 2;
      if (const auto known = known_.last(middle); known && *known > fits) {
        middle = *known;
      } else if (const std::int64_t next = known_.next(middle); next > fits && next < too_large) {
        middle = next;
      } else {
        break;
      }
      if (auto fit = at(middle, way)) {
        best = fit;
        fits = middle;
      } else {
        too_large = middle;
      }
    }
    return best;
  }

 private:
  std::optional<Fit> at(std::int64_t batch, Way way) const {
    std::unique_ptr<const cost::Problem> made;
    if (batch != problem_.batch) made = others_.problem_at(batch);
    const cost::Problem& problem = made ? *made : problem_;
    const std::unique_ptr<oracle::Oracle> oracle = others_.oracle_of(problem);
    oracle::BatchEvaluator evaluator(*oracle);
    for (std::int64_t parts = way == Way::kMicroBatches ? 2 : 1;
         parts <= std::min(batch, way == Way::kMicroBatches ? kMostMicroBatches : 1); parts *= 2) {
      std::vector<Strategy> strategies;
      std::vector<std::string> names;
      for (NamedStrategy& one : baseline_strategies(problem)) {
        const bool cheap = one.name == "ev-ar" || one.name == "cp-ar" || one.name == "single";
        if (!cheap || one.strategy.order != decide::OrderPolicy::kRank) continue;
        if (!decide::can_accumulate(problem, one.strategy, parts)) continue;
        strategies.push_back(decide::accumulate(problem, std::move(one.strategy), parts));
        names.push_back(std::move(one.name));
      }
      if (way == Way::kRecomputing) recompute_in_blocks(problem, strategies, names);
      std::optional<Fit> fit;
      const std::vector<oracle::Measured> measured = evaluator.evaluate(strategies);
      for (std::size_t i = 0; i < measured.size(); ++i) {
        const oracle::Evaluation& now = measured[i].evaluation;
        if (!now.feasible || (fit && fit->step <= now.step)) continue;
        fit = Fit{.batch = batch, .micro_batches = parts, .step = now.step, .planner = names[i]};
      }
      if (fit) return fit;
    }
    return std::nullopt;
  }

  const cost::Problem& problem_;
  const graph::KnownBatches& known_;
  const OtherBatches& others_;
};

}  // namespace

WhatFits what_fits(const cost::Problem& problem, const graph::KnownBatches& known,
                   const OtherBatches& others) {
  const Tries tries(problem, known, others);
  return {.asked = problem.batch,
          .whole = tries.best(Way::kWhole),
          .micro_batches = tries.best(Way::kMicroBatches),
          .recomputing = tries.best(Way::kRecomputing)};
}

}  // namespace heterog::search
