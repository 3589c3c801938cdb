// Pipelines, and a better order for those that may come before all else with it.
#include <algorithm>
#include <set>
#include <tuple>

#include "base/log.h"
#include "compiler/micro_batches.h"
#include "planner/local_search.h"
#include "planner/pipeline/pipelines.h"
#include "planner/portfolio/stages.h"
#include "planner/starts.h"

namespace heterog::planner::portfolio {
namespace {

// What a plan without budget spends on pipelines, in tasks of all their plans.
constexpr std::size_t kPipelineTasks = 1'500'000;
// With a budget, so many times as much.
constexpr std::size_t kMoreWithBudget = 8;
// With fewer plans in one shot, pipelines are not tried where something fits.
constexpr std::int64_t kPlansForPipelines = 72;
// Estimates of pipelines are wrong by so much at times.
constexpr double kHopeful = 1.1;
// A better order makes the step of a pipeline shorter by up to a fifth.
constexpr double kGainsByOrder = 1.25;
// Better orders are looked at for these, and for others up to so many tasks in all.
constexpr std::size_t kFastestToReorder = 4;
constexpr std::int64_t kReorderedTasks = 250'000;
constexpr std::size_t kPipelinesToClimb = 2;
// What moves of a pipeline spend before anything else has its turn, in tasks of all their plans.
constexpr std::int64_t kMovedTasks = 1'500'000;
constexpr std::int64_t kLeastMoves = 8, kMostMoves = 64;
constexpr const char* kPipeline = "pipeline";
constexpr std::uint64_t kClimbingPipelines = 1;  // a stream of random numbers

double times_the_best(const Search& search, double factor) {
  const Evaluation& best = search.result.evaluation;
  return best.feasible ? factor * to_seconds(best.step) : 1e30;
}

// The tasks of a plan in so many instances, about.
std::int64_t tasks_of(const Search& search, const compiler::Strategy& pipeline) {
  const cost::Problem& problem = search.context.problem();
  return static_cast<std::int64_t>(problem.folded->ops.size()) *
         compiler::most_instances(pipeline, problem.batch);
}

// Those that are looked at in a better order: the fastest, then the fastest that differ from them
// in their line, number of stages or of micro-batches. Strict turns are an order already.
std::vector<compiler::Strategy> worth_reordering(const Search& search,
                                                 const TriedPipelines& tried) {
  using One = TriedPipelines::One;
  const double longest = times_the_best(search, kGainsByOrder);
  std::vector<const One*> all;
  for (const One& one : tried.all) {
    const bool hopeful = one.evaluation.feasible && to_seconds(one.evaluation.step) <= longest;
    if (hopeful && !one.strategy.strict) all.push_back(&one);
  }
  std::ranges::stable_sort(all, better, [](const One* one) { return one->evaluation; });
  std::vector<compiler::Strategy> chosen;
  std::set<std::tuple<std::size_t, std::size_t, std::size_t>> known;
  std::int64_t tasks = 0;
  for (const One* one : all) {
    const Cut& cut = *one->cut;
    const bool differs = known.emplace(cut.line, cut.stages.size(), cut.costs).second;
    if (!differs && chosen.size() >= kFastestToReorder) continue;
    tasks += tasks_of(search, one->strategy);
    if (chosen.size() >= kFastestToReorder && tasks > kReorderedTasks) break;
    chosen.push_back(one->strategy);
  }
  return chosen;
}

// What they come to in a better order, the best first: a fifth of a step is gained at times.
std::vector<Tried> reorder_pipelines(Search& search, const TriedPipelines& tried) {
  const std::vector<compiler::Strategy> strategies = worth_reordering(search, tried);
  const auto ordered = better_orders(search, strategies, kLookingRounds);
  std::vector<Tried> made;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const Evaluation own = search.evaluator.evaluate(strategies[i]).evaluation;  // remembered
    made.push_back({strategies[i], ordered[i] ? ordered[i]->measured.evaluation : own});
  }
  std::ranges::stable_sort(made, better, &Tried::evaluation);
  return made;
}

// The best of them, neighbours of one that was chosen left out.
std::vector<Start> chosen_of(std::vector<Tried> reordered) {
  std::vector<Start> chosen;
  for (Tried& one : reordered) {
    const bool differs = std::ranges::none_of(chosen, [&](const Start& other) {
      return other.tried.strategy.units == one.strategy.units;
    });
    if (differs && chosen.size() < kPipelinesToClimb) chosen.push_back({std::move(one), kPipeline});
  }
  return chosen;
}

// Moves of layers, devices, samples and turns. A few dozen seldom gain anything, and each takes
// long: only where there is a budget.
void climb(Search& search, Start& pipeline, Rng& rng) {
  const std::int64_t moves = kMovedTasks / tasks_of(search, pipeline.tried.strategy);
  SearchResult found = local_search(
      search.evaluator, pipeline.tried.strategy, rng,
      {.evaluations = std::clamp(moves, kLeastMoves, kMostMoves), .order_rounds = kLookingRounds});
  if (!better(found.evaluation, pipeline.tried.evaluation)) return;
  pipeline = {{std::move(found.strategy), found.evaluation}, pipeline.name + " + local-search"};
}

void climb_pipelines(Search& search, std::vector<Start> pipelines) {
  Rng rng = search.context.rng.split(kClimbingPipelines);
  std::vector<compiler::Strategy> strategies;
  for (Start& pipeline : pipelines) {
    if (search.context.budget.limited()) climb(search, pipeline, rng);
    strategies.push_back(pipeline.tried.strategy);
  }
  const auto ordered = better_orders(search, strategies);
  for (std::size_t i = 0; i < pipelines.size(); ++i) {
    if (!ordered[i]) continue;
    consider(search, ordered[i]->strategy, ordered[i]->measured.evaluation,
             reordered(pipelines[i].name));
  }
  best_first(pipelines);
  search.pipelines = std::move(pipelines);
}

}  // namespace

void try_pipelines(Search& search) {
  if (search.evaluator.spent() || search.options.pipelines == 0) return;
  const bool limited = search.context.budget.limited();
  // A plan in micro-batches has several times the tasks; where even plain ones take long, only a
  // budget pays for it.
  if (!limited && search.result.evaluation.feasible &&
      one_shot_evaluations(search.context.problem()) < kPlansForPipelines) {
    return;
  }
  const std::size_t more = limited ? kMoreWithBudget : 1;
  const PipelineLimits limits{.count = more * static_cast<std::size_t>(search.options.pipelines),
                              .tasks = more * kPipelineTasks,
                              .seconds = times_the_best(search, kHopeful),
                              .put_off = limited};
  const TriedPipelines tried = planner::try_pipelines(search.evaluator, limits);
  if (tried.all.empty()) return;
  const auto best = std::ranges::min_element(tried.all, better, &TriedPipelines::One::evaluation);
  consider(search, best->strategy, best->evaluation, kPipeline);
  climb_pipelines(search, chosen_of(reorder_pipelines(search, tried)));
}

}  // namespace heterog::planner::portfolio
