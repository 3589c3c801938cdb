// Pipelines, and moves of the best of them.
#include <algorithm>
#include <array>
#include <iterator>

#include "base/log.h"
#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "search/coarse/coarse_pipelines.h"
#include "search/engines/local_search.h"
#include "search/moves/move.h"
#include "search/pipeline/pipelines.h"
#include "search/portfolio/stages.h"
#include "search/starts/starts.h"
#include "search/starts/sync_split.h"

namespace heterog::search::portfolio {
namespace {

// What a plan without budget spends on pipelines, in tasks of all their plans.
constexpr std::size_t kPipelineTasks = 1'500'000;
// With a budget, so many times as much.
constexpr std::size_t kMoreWithBudget = 8;
// Estimates of pipelines are wrong by so much at times; and too high by so much where the best plan
// so far is a pipeline, whose step was simulated.
constexpr double kHopeful = 1.1, kTooHigh = 1.3;
constexpr std::size_t kPipelinesToClimb = 3;
constexpr std::array kBuckets = {decide::kLargeBucketBytes, decide::kLargestBucketBytes};
// What moves of each of them spend, in tasks of all their plans; and in plans.
constexpr std::int64_t kMovedTasks = 3'000'000;
// Plans of more tasks than this take too long for the least number of moves.
constexpr std::int64_t kMostMovedTasks = 1'500'000;
constexpr std::int64_t kLeastMoves = 8, kMostMoves = 40;
constexpr const char* kPipeline = "pipeline";
constexpr std::uint64_t kClimbingPipelines = 1;  // a stream of random numbers

double times_the_best(const Search& search, double factor) {
  const Evaluation& best = search.result.evaluation;
  return best.feasible ? factor * to_seconds(best.step) : 1e30;
}

// The tasks of a plan in so many instances, about.
std::int64_t tasks_of(const Search& search, const decide::Strategy& pipeline) {
  const cost::Problem& problem = search.context.problem();
  return static_cast<std::int64_t>(problem.folded->ops.size()) *
         decide::most_instances(pipeline, problem.batch);
}

// The best; not those that are a chosen one in another spelling.
std::vector<Start> worth_climbing(const Search& search, const TriedPipelines& tried) {
  using One = TriedPipelines::One;
  const double longest = times_the_best(search, kHopeful);
  std::vector<const One*> all;
  for (const One& one : tried.all) {
    const bool fits = one.evaluation.feasible || !search.result.evaluation.feasible;
    if (fits && to_seconds(one.evaluation.step) <= longest) all.push_back(&one);
  }
  std::ranges::stable_sort(all, better, [](const One* one) { return one->evaluation; });
  std::vector<const One*> chosen;
  for (const One* one : all) {
    const bool differs = std::ranges::none_of(chosen, [&](const One* other) {
      return other->strategy.units == one->strategy.units ||
             other->evaluation.step == one->evaluation.step;
    });
    if (!differs || chosen.size() == kPipelinesToClimb) continue;
    const auto as_before = [&](const One* other) {
      return other->tied_together == chosen.front()->tied_together;
    };
    // The last place is for one with the layers of a tied parameter together if the others have
    // them apart, or the other way round: moves hardly lead from one to the other.
    const bool last = chosen.size() + 1 == kPipelinesToClimb;
    if (last && as_before(one) && std::ranges::all_of(chosen, as_before) &&
        !std::ranges::all_of(all, as_before)) {
      continue;
    }
    chosen.push_back(one);
  }
  std::vector<Start> starts;
  for (const One* one : chosen) starts.push_back({{one->strategy, one->evaluation}, kPipeline});
  return starts;
}

// What runs forward passes again in one batch sums gradients as data parallelism does.
void split(Search& search, Start& start) {
  if (start.tried.strategy.micro_batches > 1 || !with(search, Part::kSyncSplit)) return;
  const auto units =
      space::summarize_groups(with_units(search.context.problem(), start.tried.strategy));
  replace(search, start, split_syncs(search.evaluator, units, start.tried, search.costly),
          " + split");
}

// Moves of layers, devices, samples and turns; few where what is climbed from was climbed to in
// passes of layers.
void climb(Search& search, Start& pipeline, std::int64_t most, Rng& rng) {
  const std::int64_t tasks = tasks_of(search, pipeline.tried.strategy);
  if (!search.limited && tasks > kMostMovedTasks) return;
  const std::int64_t moves = kMovedTasks / tasks;
  SearchResult found = local_search(search.evaluator, pipeline.tried.strategy, rng,
                                    {.evaluations = std::clamp(moves, kLeastMoves, most)});
  if (!better(found.evaluation, pipeline.tried.evaluation)) return;
  pipeline = {{std::move(found.strategy), found.evaluation}, pipeline.name + " + local-search"};
  consider(search, pipeline.tried.strategy, pipeline.tried.evaluation, pipeline.name);
}

}  // namespace

void try_pipelines(Search& search) {
  if (search.evaluator.spent() || search.options.pipelines == 0 || !with(search, Part::kPipelines))
    return;
  const bool limited = search.limited;
  const std::size_t more = limited ? kMoreWithBudget : 1;
  PipelineLimits limits{.count = more * static_cast<std::size_t>(search.options.pipelines),
                        .tasks = more * kPipelineTasks,
                        .seconds = times_the_best(search, kHopeful),
                        .busiest = times_the_best(search, 1),
                        .improved = true,
                        .all_patterns = limited};
  const bool few = !limited && search.few && search.result.evaluation.feasible;
  if (few) {
    limits = of_few(limits);
    limits.seconds =
        times_the_best(search, search.result.strategy.micro_batches > 1 ? kTooHigh : 1);
  }
  Rng rng = search.context.rng.split(kClimbingPipelines);
  const TriedPipelines tried = try_pipelines_coarsely(search.evaluator, limits, &rng);
  if (!tried.all.empty()) {
    const auto best = std::ranges::min_element(tried.all, better, &TriedPipelines::One::evaluation);
    consider(search, best->strategy, best->evaluation, kPipeline);
  }
  std::vector<Start> pipelines = worth_climbing(search, tried);
  // What was given, or runs forward passes again, is climbed from once.
  const auto given = std::ranges::stable_partition(search.pipelines, [&](const Start& one) {
    return one.name != search.options.given_by && one.name != kRecomputed;
  });
  std::ranges::move(given, std::back_inserter(pipelines));
  search.pipelines.erase(given.begin(), given.end());
  // Not what was given, or runs forward passes again in one batch.
  const auto in_passes = [&](const Start& one) {
    return tried.in_passes && one.name.starts_with(kPipeline);
  };
  if (!few) {
    for (Start& pipeline : pipelines) {
      if (!limited && far_behind(search, pipeline.tried.evaluation)) continue;
      // Moves are few, and would get there by chance only.
      choose_buckets(search, pipeline, kBuckets);
      split(search, pipeline);
      if (with(search, Part::kMovedPipelines))
        climb(search, pipeline, in_passes(pipeline) ? kLeastMoves : kMostMoves, rng);
    }
  }
  // Those of one shot are climbed from already.
  std::ranges::move(pipelines, std::back_inserter(search.pipelines));
  best_first(search.pipelines);
  if (search.pipelines.size() > kPipelinesToClimb) search.pipelines.resize(kPipelinesToClimb);
}

}  // namespace heterog::search::portfolio
