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
// Of plans without budget, in tasks of all that moves of a pipeline come to.
constexpr std::int64_t kMovedTasks = 500'000;
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

// Moves of layers, devices, samples and turns, from the best.
void climb_pipelines(Search& search, std::vector<Tried> from) {
  // Neighbours of one that was chosen are not climbed from too.
  std::vector<Tried> chosen;
  for (Tried& one : from) {
    const bool differs = std::ranges::none_of(
        chosen, [&](const Tried& other) { return other.strategy.units == one.strategy.units; });
    if (differs && chosen.size() < kPipelinesToClimb) chosen.push_back(std::move(one));
  }
  Rng rng = search.context.rng.split(kClimbingPipelines);
  std::vector<compiler::Strategy> climbed;
  for (const Tried& one : chosen) {
    const std::int64_t moves = kMovedTasks / tasks_of(search, one.strategy);
    SearchResult found = local_search(search.evaluator, one.strategy, rng,
                                      {.evaluations = std::clamp(moves, kLeastMoves, kMostMoves),
                                       .order_rounds = kLookingRounds});
    logger().debug("a pipeline of {:.6f} s climbed to {:.6f} s", to_seconds(one.evaluation.step),
                   to_seconds(found.evaluation.step));
    climbed.push_back(found.strategy);
    const bool moved = found.strategy != one.strategy;
    search.pipelines.push_back({{std::move(found.strategy), found.evaluation},
                                moved ? kPipeline + std::string(" + local-search") : kPipeline});
  }
  const auto ordered = better_orders(search, climbed);
  for (std::size_t i = 0; i < climbed.size(); ++i) {
    if (!ordered[i]) continue;
    consider(search, ordered[i]->strategy, ordered[i]->measured.evaluation,
             reordered(search.pipelines[i].name));
  }
  best_first(search.pipelines);
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
                              .seconds = times_the_best(search, kHopeful)};
  const TriedPipelines tried = planner::try_pipelines(search.evaluator, limits);
  if (tried.all.empty()) return;
  const auto best = std::ranges::min_element(tried.all, better, &TriedPipelines::One::evaluation);
  consider(search, best->strategy, best->evaluation, kPipeline);
  climb_pipelines(search, reorder_pipelines(search, tried));
}

}  // namespace heterog::planner::portfolio
