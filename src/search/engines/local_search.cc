// Hill climbing in rounds: several moves from one incumbent, then the moves that helped, together.
#include "search/engines/local_search.h"

#include <algorithm>
#include <array>

#include "search/moves/kind_chooser.h"
#include "search/moves/moves.h"
#include "search/starts/starts.h"

namespace heterog::search {

namespace {

struct Proposal {
  Move move;
  MoveKind kind;
  decide::Strategy strategy;
  Measured measured;
};

struct LocalSearchSettings {
  std::int64_t patience = 0, round = LocalSearchOptions{}.round;
};

constexpr std::array<Field<LocalSearchSettings>, 2> kLocalFields = {
    {{"patience", "give up after so many moves in a row that did not help; 0: never",
      IntegerField<LocalSearchSettings>{&LocalSearchSettings::patience, {0, 1'000'000'000}}},
     {"round", "moves that are tried from one plan before the best is taken",
      IntegerField<LocalSearchSettings>{&LocalSearchSettings::round, {1, 4096}}}}};

class LocalSearch final : public Planner {
 public:
  explicit LocalSearch(LocalSearchSettings options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    BatchEvaluator evaluator(context.oracle, budget_or_one_shot(context));
    const Tried start = best_start(evaluator);
    const SearchResult found =
        local_search(evaluator, start.strategy, context.rng,
                     {.evaluations = kUnbounded,  // the evaluator keeps the budget
                      .patience = options_.patience,
                      .round = options_.round});
    return {.strategy = found.strategy,
            .evaluation = found.evaluation,
            .evaluations = evaluator.evaluations(),
            .refused = evaluator.refused()};
  }

 private:
  LocalSearchSettings options_;
};

}  // namespace

SearchResult local_search(BatchEvaluator& evaluator, const decide::Strategy& start, Rng& rng,
                          const LocalSearchOptions& options) {
  const cost::Problem of_units = with_units(evaluator.problem(), start);
  const MoveMaker maker(of_units);
  KindChooser kinds(start.micro_batches > 1, options.together);
  Incumbent incumbent{start, evaluator.evaluate(start)};
  const std::int64_t end = evaluator.evaluations() + options.evaluations;
  std::vector<Proposal> helpful;  // of the last round, best first, the one taken left out
  std::int64_t in_vain = 0;
  // Small spaces run out of new strategies: rounds without any end the search there.
  for (int stale = 0; stale < kStaleRounds;) {
    const std::int64_t left = std::min(end - evaluator.evaluations(), evaluator.evaluations_left());
    if (left <= 0 || evaluator.used() >= options.until) break;
    if (options.patience > 0 && in_vain >= options.patience) break;

    std::vector<Proposal> round;
    const auto size = static_cast<std::size_t>(std::min(options.round, left));
    if (!helpful.empty()) {
      // What helped the last incumbent may still help this one: all of it, and the best of it.
      decide::Strategy all = incumbent.strategy;
      for (const Proposal& proposal : helpful) all = maker.moved_to(all, proposal.move);
      round.push_back({helpful[0].move, helpful[0].kind, std::move(all), {}});
      if (helpful.size() > 1 && size > 1) {
        round.push_back({helpful[0].move,
                         helpful[0].kind,
                         maker.moved_to(incumbent.strategy, helpful[0].move),
                         {}});
      }
    }
    while (round.size() < size) {
      const MoveKind kind = kinds.draw(rng);
      Move move = maker.propose(incumbent, kind, rng);
      decide::Strategy moved = maker.moved_to(incumbent.strategy, move);
      round.push_back({std::move(move), kind, std::move(moved), {}});
    }
    std::vector<decide::Strategy> strategies;
    for (const Proposal& proposal : round) {
      strategies.push_back(in_one_spelling(proposal.strategy));
    }
    const std::int64_t before = evaluator.evaluations();
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    stale = evaluator.evaluations() == before ? stale + 1 : 0;
    helpful.clear();
    for (std::size_t i = 0; i < round.size(); ++i) {
      round[i].measured = measured[i];
      const bool helped = better(measured[i].evaluation, incumbent.measured.evaluation);
      kinds.learn(round[i].kind, helped);
      if (helped) helpful.push_back(std::move(round[i]));
    }
    in_vain = helpful.empty() ? in_vain + static_cast<std::int64_t>(size) : 0;
    if (helpful.empty()) continue;
    std::stable_sort(helpful.begin(), helpful.end(), [](const Proposal& a, const Proposal& b) {
      return better(a.measured.evaluation, b.measured.evaluation);
    });
    incumbent = {std::move(helpful.front().strategy), std::move(helpful.front().measured)};
    helpful.erase(helpful.begin());
  }
  return {in_one_spelling(std::move(incumbent.strategy)), incumbent.measured.evaluation};
}

PlannerEntry local_search_entry() {
  return planner_entry<LocalSearchSettings>(
      "local-search", "changes a few groups and keeps what helps", kLocalFields,
      [](const LocalSearchSettings& options) { return std::make_unique<LocalSearch>(options); });
}

}  // namespace heterog::search
