// In passes of layers, climbed from, and as they are.
#include "search/coarse/coarse_pipelines.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "decide/pass_turns.h"
#include "search/coarse/coarse_problem.h"
#include "search/engines/halving.h"
#include "search/moves/move.h"

namespace heterog::search {
namespace {

// Where they are simulated in passes of layers first, so many times as many of what the limits say.
constexpr std::size_t kMoreTasks = 4, kMoreCuts = 2, kMoreFolded = 5;
// Of the best of these, so many are climbed from, in so many plans for each that the limits say.
constexpr std::size_t kClimbed = 4, kPlansClimbing = 16;
// Passes of layers hold each other up for longer than their ops do: steps are too long, mostly by
// less than this.
constexpr double kTooLong = 1 / 0.9;
// So many at a time are simulated of the whole problem, the best first, as long as one of the rest
// could be better.
constexpr std::size_t kConfirmedAtATime = 4, kFewAtATime = 2;
// Twice what was asked for: in passes of layers something is missing that they wait for, and the
// others wait for it too.
constexpr double kFarTooLong = 2;

// Where plans are few, one in micro-batches, of several times the tasks, takes long. One of each
// number of micro-batches and of so many tasks at most is tried; then the best of them in a few
// other numbers.
constexpr std::size_t kFewPipelines = 3, kOthersOfFew = 2, kTasksOfFew = 2'200'000;
// Fewer micro-batches are tried of the best alone.
constexpr std::int64_t kPartsOfFew = 8;

using One = TriedPipelines::One;

// Of what is left, half of the time, or as many plans as take about as long.
oracle::Budget budget_in_passes(const BatchEvaluator& evaluator, const PipelineLimits& limits) {
  oracle::Budget budget;
  const oracle::Budget& given = evaluator.budget();
  if (given.evaluations) {
    budget.evaluations = limits.for_one * evaluator.evaluations_left();
  }
  if (given.time_used) {
    budget.time_used = [used = given.time_used, from = given.time_used()] {
      return 2 * (used() - from) / std::max(1 - from, 1e-9);
    };
  }
  return budget;
}

bool is_folded(const Cut& cut) {
  const auto again = [&](const Stage& stage) {
    return std::ranges::count(cut.stages, stage.devices, &Stage::devices) > 1;
  };
  return std::ranges::any_of(cut.stages, again);
}

// The best first, but that of each number of micro-batches before all others: with few of them,
// passes of layers hold each other up for longest. Where plans are few, so that nothing is climbed
// from, those there and back have turns of their own, as these hold each other up for longer yet.
std::vector<One> in_turns(std::vector<One> all, bool few) {
  std::ranges::stable_sort(all, better, &One::evaluation);
  std::vector<std::pair<std::int64_t, bool>> known;
  std::vector<One> first, rest;
  for (One& one : all) {
    const std::pair kind(one.strategy.micro_batches, few && is_folded(*one.cut));
    const bool is_new = known.size() < kClimbed && std::ranges::find(known, kind) == known.end();
    if (is_new) known.push_back(kind);
    (is_new ? first : rest).push_back(std::move(one));
  }
  std::ranges::move(rest, std::back_inserter(first));
  return first;
}

// The best of `all`, different ones, and what climbing makes of a few of them; the best first.
std::vector<One> climbed(BatchEvaluator& evaluator, std::vector<One> all,
                         const PipelineLimits& limits, Rng* rng) {
  std::ranges::stable_sort(all, better, &One::evaluation);
  const auto same = [](const One& a, const One& b) {
    return a.evaluation.step == b.evaluation.step;
  };
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
  all = in_turns(std::move(all), limits.by_parts);
  if (rng == nullptr || limits.by_parts) return all;
  std::vector<Start> starts;  // named by their places in `all`
  for (std::size_t i = 0; i < std::min(kClimbed, all.size()); ++i) {
    starts.push_back({{all[i].strategy, all[i].evaluation}, std::to_string(i)});
  }
  const auto plans = static_cast<std::int64_t>(kPlansClimbing * limits.count);
  evaluator.set_budget(
      {.evaluations = evaluator.evaluations() + std::min(plans, evaluator.evaluations_left()),
       .time_used = evaluator.budget().time_used,
       .tasks = kMoreTasks * limits.tasks});
  for (Start& start : halve(evaluator, std::move(starts), *rng, 1)) {
    const One from = all[std::stoul(start.name)];
    if (!better(start.tried.evaluation, from.evaluation)) continue;
    all.push_back(
        {from.cut, std::move(start.tried.strategy), start.tried.evaluation, from.tied_together});
  }
  return in_turns(std::move(all), limits.by_parts);
}

// Turns that devices can take strictly in passes of layers, they may not be able to take as they
// are: running statistics of batch normalisation are those of all micro-batches.
decide::Strategy as_it_is(const cost::Problem& problem, const Coarse& coarse, const CutPool& pool,
                          const decide::Strategy& strategy) {
  decide::Strategy whole = of_whole(coarse, strategy);
  if (!whole.strict) return whole;
  const bool may_be = std::ranges::find(pool.strictness, true) != pool.strictness.end() &&
                      decide::stages_in_line(problem, whole);
  return may_be ? whole : apply(whole, {.strict = false});
}

// Simulates what is best in passes of layers as it is: so many at most, but until one fits.
std::vector<One> confirmed(BatchEvaluator& evaluator, const Coarse& coarse,
                           const TriedPipelines& tried, const PipelineLimits& limits) {
  const std::vector<One>& rough = tried.all;
  const std::size_t most = std::max<std::size_t>(3, limits.count / 3);
  const std::size_t at_a_time = limits.by_parts ? kFewAtATime : kConfirmedAtATime;
  std::vector<One> found;
  double shortest = limits.seconds;
  bool fits = false;
  const auto is_hopeful = [&](const One& one) {
    const bool may_fit = one.evaluation.feasible || !fits;
    return may_fit && to_seconds(one.evaluation.step) <
                          std::min(kTooLong * shortest, limits.seconds_in_passes);
  };
  for (auto next = rough.begin(); next != rough.end();) {
    if (!found.empty() && (evaluator.spent() || (fits && found.size() >= most))) break;
    const auto first = next;
    const auto left = std::max<std::int64_t>(1, evaluator.evaluations_left());
    const std::size_t now = std::min(at_a_time, static_cast<std::size_t>(left));
    std::vector<decide::Strategy> strategies;
    for (; next != rough.end() && strategies.size() < now && is_hopeful(*next); ++next) {
      strategies.push_back(as_it_is(evaluator.problem(), coarse, tried.pool, next->strategy));
    }
    if (strategies.empty()) break;
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const One& one = *(first + static_cast<std::ptrdiff_t>(i));
      const Evaluation& evaluation = measured[i].evaluation;
      logger().debug("pipeline in passes of layers: {:.4f} s, as it is {:.4f} s{}",
                     to_seconds(one.evaluation.step), to_seconds(evaluation.step),
                     evaluation.feasible ? "" : ", does not fit in memory");
      fits |= evaluation.feasible;
      if (evaluation.feasible) shortest = std::min(shortest, to_seconds(evaluation.step));
      found.push_back({one.cut, std::move(strategies[i]), evaluation, one.tied_together});
    }
    const auto least =
        std::ranges::min_element(found, {}, [](const One& one) { return one.evaluation.step; });
    if (to_seconds(least->evaluation.step) > kFarTooLong * limits.seconds) break;
  }
  return found;
}

}  // namespace

PipelineLimits of_few(PipelineLimits limits) {
  limits.count = std::min(limits.count, kFewPipelines);
  limits.tasks = kFewPipelines * kTasksOfFew;
  limits.tasks_each = kTasksOfFew;
  limits.alike = 1;
  limits.by_parts = true;
  limits.least_parts = kPartsOfFew;
  limits.others = kOthersOfFew;
  return limits;
}

TriedPipelines try_pipelines_coarsely(BatchEvaluator& evaluator, const PipelineLimits& limits,
                                      Rng* rng, const PipelineOptions& options) {
  TriedPipelines tried{promising_pool(evaluator.oracle(), options)};
  std::optional<Coarse> coarse;
  if (!tried.pool.found.empty()) {
    coarse = coarse_problem(evaluator.problem(), tried.pool.once.chain);
  }
  const auto oracle = coarse ? evaluator.oracle().of(*coarse->problem) : nullptr;
  if (!oracle) {
    try_cuts(evaluator, tried, limits, options);
    return tried;
  }
  for (CutPool::Costed* costed : {&tried.pool.once, &tried.pool.again}) {
    costed->chain.layer_of = coarse->chain.layer_of;
  }
  BatchEvaluator in_passes(*oracle, budget_in_passes(evaluator, limits));
  PipelineLimits more = limits;
  more.tasks *= kMoreTasks;
  more.count *= kMoreCuts;
  more.folded = kMoreFolded;
  more.every_order = true;
  try_cuts(in_passes, tried, more, options);
  tried.all = climbed(in_passes, std::move(tried.all), limits, rng);
  tried.all = confirmed(evaluator, *coarse, tried, limits);
  tried.in_passes = true;
  return tried;
}

}  // namespace heterog::search
