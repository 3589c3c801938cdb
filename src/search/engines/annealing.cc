// Metropolis' rule over rounds of neighbours, which are evaluated together.
#include "search/engines/annealing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "search/moves/kind_chooser.h"
#include "search/starts/starts.h"

namespace heterog::search {

namespace {

// How much longer `next` takes than `now`, as a part of it; what does not fit is never taken in
// place of what does.
bool accept(const Evaluation& next, const Evaluation& now, double temperature, double draw) {
  if (!better(now, next)) return true;
  if (next.feasible != now.feasible || next.missing_bytes != now.missing_bytes) return false;
  const double longer = to_seconds(next.step - now.step) / to_seconds(now.step);
  return draw < std::exp(-longer / temperature);
}

struct AnnealingSettings {
  std::int64_t round = AnnealingOptions{}.round;
};

constexpr std::array<Field<AnnealingSettings>, 1> kAnnealingFields = {
    {{"round", "strategies that are evaluated at a time",
      IntegerField<AnnealingSettings>{&AnnealingSettings::round, {1, 4096}}}}};

class Annealing final : public Planner {
 public:
  explicit Annealing(AnnealingSettings options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    BatchEvaluator evaluator(context.oracle, budget_or_one_shot(context));
    const Tried start = best_start(evaluator);
    const SearchResult found = anneal(evaluator, start.strategy, context.rng,
                                      {.evaluations = kUnbounded,  // the evaluator keeps the budget
                                       .round = options_.round});
    return {.strategy = found.strategy,
            .evaluation = found.evaluation,
            .evaluations = evaluator.evaluations(),
            .refused = evaluator.refused()};
  }

 private:
  AnnealingSettings options_;
};

}  // namespace

SearchResult anneal(BatchEvaluator& evaluator, const decide::Strategy& start, Rng& rng,
                    const AnnealingOptions& options) {
  const cost::Problem of_units = with_units(evaluator.problem(), start);
  const MoveMaker maker(of_units);
  KindChooser kinds;
  Incumbent incumbent{start, evaluator.evaluate(start)};
  SearchResult best{start, incumbent.measured.evaluation};
  const std::int64_t begin = evaluator.evaluations();
  const std::int64_t end = begin + std::min(options.evaluations, evaluator.evaluations_left());
  const double begin_used = evaluator.used();
  // Small spaces run out of new strategies: rounds without any end the search there.
  int stale = 0;
  double gained_at = begin_used;
  while (evaluator.evaluations() < end && evaluator.used() < options.until &&
         stale < kStaleRounds && evaluator.used() - gained_at < options.patience) {
    const double by_count = static_cast<double>(evaluator.evaluations() - begin) /
                            static_cast<double>(std::max<std::int64_t>(1, end - begin));
    const double by_budget =
        (evaluator.used() - begin_used) / std::max(1e-12, options.until - begin_used);
    const double temperature =
        options.hot * std::pow(options.cold / options.hot, std::max(by_count, by_budget));

    std::vector<MoveKind> drawn;
    std::vector<decide::Strategy> moved, strategies;
    const std::int64_t size = std::min(options.round, end - evaluator.evaluations());
    for (std::int64_t i = 0; i < size; ++i) {
      drawn.push_back(kinds.draw(rng));
      moved.push_back(
          maker.moved_to(incumbent.strategy, maker.propose(incumbent, drawn.back(), rng)));
      strategies.push_back(in_one_spelling(moved.back()));
    }
    const std::int64_t before = evaluator.evaluations();
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    stale = evaluator.evaluations() == before ? stale + 1 : 0;

    const Evaluation now = incumbent.measured.evaluation;
    bool taken = false;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const Evaluation& evaluation = measured[i].evaluation;
      kinds.learn(drawn[i], better(evaluation, now));
      if (better(evaluation, best.evaluation)) {
        best = {strategies[i], evaluation};
        gained_at = evaluator.used();
      }
      const double draw = rng.uniform();
      if (taken || !accept(evaluation, now, temperature, draw)) continue;
      taken = true;
      incumbent = {std::move(moved[i]), measured[i]};
    }
  }
  return best;
}

PlannerEntry annealing_entry() {
  return planner_entry<AnnealingSettings>(
      "annealing", "simulated annealing: local search that takes worse plans too, ever more rarely",
      kAnnealingFields,
      [](const AnnealingSettings& options) { return std::make_unique<Annealing>(options); });
}

}  // namespace heterog::search
