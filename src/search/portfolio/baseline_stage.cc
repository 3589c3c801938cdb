// What everybody tries, and what a plan is never worse than.
#include <algorithm>
#include <iterator>
#include <limits>

#include "decide/decisions.h"
#include "search/moves/move.h"
#include "search/pipeline/pipelines.h"
#include "search/portfolio/stages.h"
#include "search/starts/baselines.h"
#include "search/starts/recomputed.h"
#include "search/starts/settle.h"
#include "search/starts/shards.h"

namespace heterog::search::portfolio {
namespace {

using decide::Strategy;

constexpr std::size_t kMostRecomputed = 2;
constexpr int kRoundsOfShares = 2;
// What does not fit is so much shorter than what does that it is worth a second forward pass.
constexpr double kMuchShorter = 0.75;

// Whether it fits or not.
double shortest_step(const std::vector<Start>& tried) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const Start& start : tried) {
    shortest = std::min(shortest, to_seconds(start.tried.evaluation.step));
  }
  return shortest;
}

void evaluate_baselines(Search& search, const std::vector<NamedStrategy>& baselines,
                        std::vector<Start>& tried) {
  std::vector<Strategy> strategies;
  strategies.reserve(baselines.size());
  for (const NamedStrategy& baseline : baselines) strategies.push_back(baseline.strategy);
  const std::vector<Measured> measured = search.evaluator.evaluate(strategies);
  std::vector<BaselineResult>& results = search.result.baselines;
  for (std::size_t i = 0; i < baselines.size(); ++i) {
    const Evaluation& evaluation = measured[i].evaluation;
    tried.push_back({{strategies[i], evaluation}, baselines[i].name});
    if (measured[i].given_up) continue;
    const auto known = std::ranges::find(results, baselines[i].name, &BaselineResult::name);
    if (known == results.end()) {
      results.push_back({baselines[i].name, evaluation});
    } else if (better(evaluation, known->evaluation)) {
      known->evaluation = evaluation;
    }
  }
}

// On hundreds of devices what a message costs counts for more than what it waits for.
void add_large_buckets(Search& search, std::vector<Start>& tried) {
  const cost::Problem& problem = search.context.problem();
  std::vector<Strategy> strategies = {even_all_reduce(problem), proportional_all_reduce(problem)};
  for (Strategy& strategy : strategies) {
    strategy.order = decide::OrderPolicy::kRankQueued;
    strategy.bucket_bytes = decide::kLargeBucketBytes;
  }
  const std::vector<Measured> measured = search.evaluator.evaluate(strategies);
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    tried.push_back({{strategies[i], measured[i].evaluation}, "large-buckets"});
  }
}

// In one order each; what is left of `baselines` is the best of them in the others.
void evaluate_in_one_order(Search& search, std::vector<NamedStrategy>& baselines,
                           std::vector<Start>& tried) {
  const auto in_others = [](const NamedStrategy& baseline) {
    return baseline.strategy.order != decide::OrderPolicy::kRankQueued &&
           baseline.strategy.units[UnitId(0)].replicas.size() > 1;
  };
  std::vector<NamedStrategy> first = baselines;
  std::erase_if(first, in_others);
  // Those with servers last: beside what the others come to they may be given up.
  const auto served = std::ranges::stable_partition(first, [](const NamedStrategy& baseline) {
    return baseline.strategy.units.raw().front().sync != decide::SyncMethod::kParameterServer;
  });
  const std::vector<NamedStrategy> with_servers(served.begin(), served.end());
  first.erase(served.begin(), served.end());
  evaluate_baselines(search, first, tried);
  std::vector<Start> buckets;
  add_large_buckets(search, buckets);
  evaluate_baselines(search, with_servers, tried);
  const std::string best = std::ranges::min_element(tried, [](const Start& a, const Start& b) {
                             return better(a.tried.evaluation, b.tried.evaluation);
                           })->name;
  std::erase_if(baselines, [&](const NamedStrategy& baseline) {
    return baseline.name != best || !in_others(baseline);
  });
  std::ranges::move(buckets, std::back_inserter(tried));
}

// What fits more samples on a device: its part of the optimizer's state alone.
void shard_state(Search& search) {
  std::vector<Strategy> strategies;
  for (const NamedStrategy& baseline : baseline_strategies(search.context.problem())) {
    const decide::UnitDecision& unit = baseline.strategy.units.raw().front();
    if (unit.replicas.size() == 1 || unit.sync != decide::SyncMethod::kAllReduce ||
        baseline.strategy.order != decide::OrderPolicy::kRankQueued) {
      continue;
    }
    strategies.push_back(sharded(baseline.strategy));
  }
  const std::vector<Measured> measured = search.evaluator.evaluate(strategies);
  std::vector<Start> tried;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    tried.push_back({{strategies[i], measured[i].evaluation}, "sharded"});
  }
  add_starts(search, std::move(tried));
}

// What keeps the fewest activations, the best two with samples moved to devices that wait. They are
// on units of their own, and are climbed from with pipelines.
void recompute(Search& search) {
  const cost::Problem& problem = search.context.problem();
  std::vector<Strategy> strategies;
  for (const NamedStrategy& baseline : baseline_strategies(problem)) {
    if (baseline.strategy.units.raw().front().replicas.size() == 1 ||
        baseline.strategy.order != decide::OrderPolicy::kRankQueued) {
      continue;
    }
    std::ranges::move(recomputed(problem, baseline.strategy), std::back_inserter(strategies));
  }
  const std::vector<Measured> measured = search.evaluator.evaluate(strategies);
  std::vector<Start> tried;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    if (!measured[i].evaluation.feasible) continue;
    tried.push_back({{std::move(strategies[i]), measured[i].evaluation}, kRecomputed});
  }
  best_first(tried);
  keep_first(tried, kMostRecomputed);
  for (Start& start : tried) {
    const auto units = space::summarize_groups(with_units(problem, start.tried.strategy));
    start.tried = settle(search.evaluator, units, start.tried, kRoundsOfShares);
    consider(search, start.tried.strategy, start.tried.evaluation, start.name);
    search.pipelines.push_back(std::move(start));
  }
}

// What users do where a batch does not fit; local search does not know its micro-batches.
void accumulate(Search& search) {
  const std::vector<Tried> tried = try_accumulation(search.evaluator);
  if (tried.empty()) return;
  const auto best = std::ranges::min_element(tried, better, &Tried::evaluation);
  search.result.baselines.push_back({"accumulate", best->evaluation});
  consider(search, best->strategy, best->evaluation, "accumulate");
}

}  // namespace

void try_baselines(Search& search) {
  std::vector<NamedStrategy> baselines = baseline_strategies(search.context.problem());
  std::vector<Start> tried;
  if (search.costly) {
    evaluate_in_one_order(search, baselines, tried);
  }
  evaluate_baselines(search, baselines, tried);
  const double shortest = shortest_step(tried);
  add_starts(search, std::move(tried));
  const Evaluation& best = search.result.evaluation;
  const bool fits = best.feasible;
  if (fits && shortest > kMuchShorter * to_seconds(best.step)) return;
  if (!fits && !search.evaluator.spent()) accumulate(search);
  if (!fits && !search.evaluator.spent()) shard_state(search);
  if (!search.evaluator.spent()) recompute(search);
}

}  // namespace heterog::search::portfolio
