// Draws strategies in rounds and evaluates each round on all threads.
#include "search/engines/random_search.h"

#include <algorithm>
#include <array>

#include "search/planner.h"

namespace heterog::search {

namespace {

constexpr std::int64_t kRound = 16;  // fixed, so that the result does not depend on the threads

constexpr std::array<Field<RandomSearchOptions>, 1> kRandomFields = {
    {{"evaluations", "strategies to try where no budget is given",
      IntegerField<RandomSearchOptions>{&RandomSearchOptions::evaluations, {1, 1'000'000'000}}}}};

class RandomSearch final : public Planner {
 public:
  explicit RandomSearch(const RandomSearchOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    Budget budget = context.budget;
    if (!budget.limited()) {
      budget.evaluations = options_.evaluations;
    }
    const space::ActionSpace actions(context.problem());
    BatchEvaluator evaluator(context.oracle, budget);
    PlannerResult best;
    bool found = false;
    std::int64_t drawn = 0;
    do {
      const std::int64_t size = std::clamp<std::int64_t>(evaluator.evaluations_left(), 1, kRound);
      std::vector<decide::Strategy> strategies;
      for (std::int64_t i = 0; i < size; ++i) {
        strategies.push_back(actions.strategy(
            random_actions(actions, context.problem().grouping.count(), context.rng)));
      }
      const std::vector<Measured> measured = evaluator.evaluate(strategies);
      for (std::size_t i = 0; i < measured.size(); ++i) {
        if (found && !better(measured[i].evaluation, best.evaluation)) continue;
        found = true;
        best.strategy = std::move(strategies[i]);
        best.evaluation = measured[i].evaluation;
      }
      drawn += size;
      // Repeats cost no evaluation: a space smaller than the budget must end the search too.
    } while (!evaluator.spent() && drawn < 4 * evaluator.evaluations() + kRound);
    best.evaluations = evaluator.evaluations();
    return best;
  }

 private:
  RandomSearchOptions options_;
};

}  // namespace

std::vector<space::ActionId> random_actions(const space::ActionSpace& actions, std::size_t groups,
                                            Rng& rng) {
  using space::ActionId;
  // 1, 2, 4, … runs, each as likely: uniform choices group by group would all be nearly the same,
  // and all bad.
  std::size_t levels = 1;
  while ((std::size_t{1} << levels) <= groups) ++levels;
  const std::size_t runs = std::size_t{1} << rng.below(levels);
  std::vector<bool> starts(groups, false);
  for (std::size_t run = 1; run < runs; ++run) starts[rng.below(groups)] = true;
  std::vector<ActionId> chosen;
  chosen.reserve(groups);
  ActionId action(rng.below(actions.size()));
  for (std::size_t group = 0; group < groups; ++group) {
    if (starts[group]) action = ActionId(rng.below(actions.size()));
    chosen.push_back(action);
  }
  return chosen;
}

PlannerEntry random_search_entry() {
  return planner_entry<RandomSearchOptions>(
      "random", "the best of random strategies", kRandomFields,
      [](const RandomSearchOptions& options) { return std::make_unique<RandomSearch>(options); });
}

}  // namespace heterog::search
