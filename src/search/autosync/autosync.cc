// Draws candidates, ranks them, tries the best that are not alike, and learns from what they took.
#include "search/autosync/autosync.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "search/autosync/ranker.h"
#include "search/autosync/ranker_io.h"
#include "search/autosync/sync_cost.h"
#include "search/autosync/sync_space.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

struct TriedPoint {
  SyncPoint point;
  Evaluation evaluation;
};

// Eq. 11, greedily: one after another, the candidate whose score and likeness to those chosen are
// least together. Scores count by their ranks, from 0 to 1.
std::vector<std::size_t> select(const std::vector<SyncPoint>& points,
                                const std::vector<double>& scores, std::size_t count) {
  constexpr double kLikeness = 0.1;       // α
  constexpr std::size_t kQualified = 10;  // M: so many times as many as are chosen
  std::vector<std::size_t> best(points.size());
  std::iota(best.begin(), best.end(), std::size_t{0});
  std::ranges::stable_sort(best, {}, [&](std::size_t i) { return scores[i]; });
  best.resize(std::min(best.size(), kQualified * count));
  std::vector<double> likeness(best.size(), 0);
  std::vector<std::uint8_t> taken(best.size(), 0);
  std::vector<std::size_t> chosen;
  while (chosen.size() < std::min(count, best.size())) {
    std::size_t least = best.size();
    double value = 0;
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (taken[i]) continue;
      const double rank = static_cast<double>(i) / static_cast<double>(best.size());
      const double own = rank + kLikeness * likeness[i];
      if (least < best.size() && own >= value) continue;
      least = i;
      value = own;
    }
    taken[least] = 1;
    chosen.push_back(best[least]);
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (!taken[i]) likeness[i] += similarity(points[best[i]], points[best[least]]);
    }
  }
  return chosen;
}

class Autosync final : public Planner {
 public:
  explicit Autosync(const AutosyncOptions& options) : options_(options) {
    if (!options.predictor.empty()) taught_ = read_ranker(options.predictor);
  }
  PlannerResult plan(PlannerContext& context) const override;

 private:
  std::vector<double> scores(const std::vector<SyncFeatures>& features,
                             const std::vector<MeasuredPoint>& measured, Rng& rng) const;

  AutosyncOptions options_;
  std::optional<LinearRanker> taught_;
};

std::vector<double> Autosync::scores(const std::vector<SyncFeatures>& features,
                                     const std::vector<MeasuredPoint>& measured, Rng& rng) const {
  std::vector<double> scores;
  std::optional<LinearRanker> ranker = taught_;
  if (options_.ranker == RankerKind::kLinear && !measured.empty()) {
    ranker = train_ranker(measured, rng);
  }
  for (const SyncFeatures& one : features) {
    scores.push_back(options_.ranker == RankerKind::kNone ? rng.uniform()
                     : ranker                             ? ranker->score(one)
                                                          : formula_seconds(one));
  }
  return scores;
}

PlannerResult Autosync::plan(PlannerContext& context) const {
  const SyncSpace space = sync_space(context.problem());
  BatchEvaluator evaluator(context.tried(), context.budget);
  PlannerResult best{.strategy = even_all_reduce(context.problem())};
  if (space.variables.empty()) {  // one device
    best.evaluation = evaluator.evaluate(std::span(&best.strategy, 1)).front().evaluation;
    best.evaluations = evaluator.evaluations();
    return best;
  }
  const SyncTimes times(space);
  std::vector<TriedPoint> tried;  // best first
  std::vector<MeasuredPoint> measured;
  bool found = false;
  for (std::int64_t left = options_.trials; left > 0 && !(found && evaluator.spent());) {
    std::vector<SyncPoint> points;
    std::vector<SyncFeatures> features;
    constexpr std::size_t kParents = 8;
    for (std::int64_t i = 0; i < options_.candidates; ++i) {
      const bool near = i % 2 == 1 && !tried.empty();
      points.push_back(
          near ? draw_near(space, tried[context.rng.below(std::min(kParents, tried.size()))].point,
                           context.rng)
               : draw_point(space, context.rng));
      features.push_back(sync_features(space, times, points.back()));
    }
    const std::int64_t size =
        std::clamp<std::int64_t>(evaluator.evaluations_left(), 1, std::min(left, options_.round));
    const std::vector<std::size_t> chosen =
        select(points, scores(features, measured, context.rng), static_cast<std::size_t>(size));
    std::vector<decide::Strategy> strategies;
    for (std::size_t i : chosen) strategies.push_back(to_strategy(space, points[i]));
    const std::vector<Measured> results = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Evaluation& evaluation = results[i].evaluation;
      tried.push_back({points[chosen[i]], evaluation});
      measured.push_back({features[chosen[i]], to_seconds(evaluation.step)});
      if (found && !better(evaluation, best.evaluation)) continue;
      found = true;
      best.strategy = std::move(strategies[i]);
      best.evaluation = evaluation;
    }
    std::ranges::stable_sort(tried, better, &TriedPoint::evaluation);
    left -= size;
  }
  best.evaluations = evaluator.evaluations();
  return best;
}

constexpr std::array<std::string_view, 3> kRankerWords = {"linear", "formula", "none"};
constexpr std::array<Field<AutosyncOptions>, 5> kAutosyncFields = {{
    {"trials", "strategies to try",
     IntegerField<AutosyncOptions>{&AutosyncOptions::trials, {1, 1'000'000}}},
    {"round", "how many of them between which the ranker learns",
     IntegerField<AutosyncOptions>{&AutosyncOptions::round, {1, 10'000}}},
    {"candidates", "how many are drawn and ranked for a round",
     IntegerField<AutosyncOptions>{&AutosyncOptions::candidates, {1, 1'000'000}}},
    {"ranker",
     "what ranks them: a linear model that learns from those tried, the paper's formulas, or "
     "nothing",
     choice<AutosyncOptions, &AutosyncOptions::ranker>(kRankerWords)},
    {"predictor", "a ranker that was taught before, by which the first round goes",
     FileField<AutosyncOptions>{&AutosyncOptions::predictor, "the paper's formulas"}},
}};

}  // namespace

PlannerEntry autosync_entry() {
  return planner_entry<AutosyncOptions>(
      "autosync", "how each parameter is synchronised, by AutoSync's search", kAutosyncFields,
      [](const AutosyncOptions& options) { return std::make_unique<Autosync>(options); });
}

}  // namespace heterog::search
