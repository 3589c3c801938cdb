// What is left of a budget: annealing, then local search, with kicks where it is stuck.
#include <algorithm>

#include "search/engines/annealing.h"
#include "search/engines/local_search.h"
#include "search/moves/move.h"
#include "search/moves/moves.h"
#include "search/portfolio/stages.h"
#include "search/starts/starts.h"

namespace heterog::search::portfolio {
namespace {

using decide::Strategy;

// Part of the budget at which annealing ends.
constexpr double kAnnealed = 0.9;
// Of annealing from what climbing has found: half of what serves from a baseline.
constexpr double kHot = 5e-3;
// With less than this budget local search gets further.
constexpr double kPlansToAnneal = 1200;
// Local search gives up after this part of the budget in vain, and after so many plans at least.
constexpr double kTurns = 5;
constexpr std::int64_t kLeastPatience = 24;
// A pipeline that is so much faster is not caught up with by moves of groups.
constexpr double kFarAhead = 0.85;
// Where plans are costly, those of devices that are alike are not: so many of them, or so many of
// their tasks, come on top of one shot.
constexpr std::int64_t kPlansTogether = 400;
constexpr std::size_t kTasksTogether = 4'000'000;
constexpr std::int64_t kPatienceTogether = 64;

// Goes on from what was found, if that is better than the best.
void keep(Search& search, Start& best, const SearchResult& found, std::string name,
          const std::string& by) {
  if (!better(found.evaluation, best.tried.evaluation)) return;
  if (!name.ends_with(by)) name += " + " + by;
  best = {{found.strategy, found.evaluation}, std::move(name)};
  consider(search, found.strategy, found.evaluation, best.name);
}

// The best start, and the best of another origin where there is time for both: starts of one origin
// end alike.
std::vector<Start> starts_to_anneal(const Search& search) {
  std::vector<Start> chosen;
  if (plans_in_all(search) < kPlansToAnneal) return chosen;
  chosen.push_back(search.starts.front());
  if (plans_in_all(search) < 2 * kPlansToAnneal) return chosen;
  const auto other = std::ranges::find_if(search.starts, [&](const Start& start) {
    return start.name != chosen.front().name && start.tried.evaluation.feasible;
  });
  if (other != search.starts.end()) chosen.push_back(*other);
  return chosen;
}

void anneal_starts(Search& search, Start& best, const std::vector<Start>& starts) {
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const double now = search.evaluator.used();
    const auto left = static_cast<double>(starts.size() - i);
    const SearchResult found =
        anneal(search.evaluator, starts[i].tried.strategy, search.context.rng,
               {.evaluations = kUnbounded, .until = now + (kAnnealed - now) / left, .hot = kHot});
    keep(search, best, found, starts[i].name, "annealing");
  }
}

// A fifth of a small budget, so that climbing can begin anew at least once.
std::int64_t affordable_patience(const Search& search) {
  if (search.options.patience == 0) return 0;
  const auto part = static_cast<std::int64_t>(plans_in_all(search) / kTurns);
  return std::min(std::max(part, kLeastPatience), search.options.patience);
}

// A few moves at once, whatever they cost, to leave a local optimum.
Strategy kick(Search& search, const Strategy& strategy, bool together) {
  const cost::Problem of_units = with_units(search.context.problem(), strategy);
  const MoveMaker maker(of_units);
  Incumbent from{strategy, search.evaluator.evaluate(strategy)};
  const int moves = 1 + static_cast<int>(search.context.rng.below(3));
  for (int i = 0; i < moves; ++i) {
    const auto kind = together ? kMovesTogether[search.context.rng.below(kMovesTogether.size())]
                               : static_cast<MoveKind>(search.context.rng.below(kMoveKindCount));
    from.strategy = maker.moved_to(from.strategy, maker.propose(from, kind, search.context.rng));
  }
  return in_one_spelling(std::move(from.strategy));
}

// From each of `turns` that fits, then from the best, kicked.
void climb_in_turns(Search& search, Start& best, std::vector<Start> turns) {
  std::erase_if(turns, [](const Start& start) { return !start.tried.evaluation.feasible; });
  const std::int64_t patience = affordable_patience(search);
  const bool together = search.few && !search.limited;
  // Nothing new to evaluate for this many rounds: the space is exhausted.
  int stale = 0;
  for (std::size_t turn = 0; !search.evaluator.spent() && stale < kStaleRounds; ++turn) {
    const Start from = turn < turns.size() ? turns[turn]
                       : turn == 0
                           ? best
                           : Start{{kick(search, best.tried.strategy, together), {}}, best.name};
    const std::int64_t before = search.evaluator.evaluations();
    keep(search, best,
         local_search(search.evaluator, from.tried.strategy, search.context.rng,
                      {.evaluations = kUnbounded, .patience = patience, .together = together}),
         from.name, "local-search");
    stale = search.evaluator.evaluations() == before ? stale + 1 : 0;
  }
}

// From the best, then from it, kicked.
void climb_together(Search& search, Start& best) {
  if (!search.costly || search.limited || !with(search, Part::kTogether)) return;
  BatchEvaluator& evaluator = search.evaluator;
  evaluator.set_budget({.evaluations = evaluator.evaluations() + kPlansTogether,
                        .time_used = evaluator.budget().time_used,
                        .tasks = kTasksTogether});
  int stale = 0;
  for (bool first = true; !evaluator.spent() && stale < kStaleRounds; first = false) {
    const Strategy from =
        first ? best.tried.strategy : kick(search, best.tried.strategy, /*together=*/true);
    const std::int64_t plans = evaluator.evaluations();
    keep(search, best,
         local_search(evaluator, from, search.context.rng,
                      {.evaluations = kUnbounded, .patience = kPatienceTogether, .together = true}),
         best.name, "local-search");
    stale = evaluator.evaluations() == plans ? stale + 1 : 0;
  }
}

}  // namespace

bool far_behind(const Search& search, const Evaluation& one) {
  const Evaluation& best = search.result.evaluation;
  return best.feasible &&
         (!one.feasible || to_seconds(best.step) < kFarAhead * to_seconds(one.step));
}

bool pipelines_lead(const Search& search) {
  const auto best = std::ranges::min_element(
      search.starts, better, [](const Start& start) { return start.tried.evaluation; });
  return far_behind(search, best->tried.evaluation);
}

void improve(Search& search) {
  if (pipelines_lead(search)) {
    if (!search.limited) return;
    if (!search.pipelines.empty()) {
      Start pipeline = search.pipelines.front();
      return climb_in_turns(search, pipeline, search.pipelines);
    }
  }
  Start best = search.starts.front();
  const std::vector<Start> annealed = starts_to_anneal(search);
  anneal_starts(search, best, annealed);
  // Where climbing is stuck, the other starts have their turn, if no annealing came before.
  std::vector<Start> turns{best};
  if (annealed.empty()) {
    turns.insert(turns.end(), search.starts.begin() + 1, search.starts.end());
  }
  climb_in_turns(search, best, std::move(turns));
  climb_together(search, best);
}

std::int64_t plans_together(const cost::Problem& problem) {
  return evaluations_are_costly(problem) ? kPlansTogether : 0;
}

}  // namespace heterog::search::portfolio
