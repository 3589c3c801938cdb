// Baselines first; memory is filled where none of them fits.
#include "search/starts/starts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "decide/decisions.h"
#include "search/starts/baselines.h"

namespace heterog::search {

namespace {

// That a plan has at most, but for communication. One takes about half a microsecond to evaluate.
std::int64_t tasks_of(const cost::Problem& problem) {
  std::size_t ops = 0;
  for (OpId op : problem.graph->op_ids()) ops += problem.graph->op(op).alias ? 0 : 1;
  return std::max<std::int64_t>(1,
                                static_cast<std::int64_t>(ops * problem.cluster->device_count()));
}

}  // namespace

bool evaluations_are_costly(const cost::Problem& problem) { return tasks_of(problem) > 60'000; }

std::int64_t one_shot_evaluations(const cost::Problem& problem) {
  constexpr std::int64_t kTasks = 9'000'000;
  // About what is spent before anything is climbed from, and the least that climbing needs.
  const std::int64_t before = evaluations_are_costly(problem) ? 24 : 64;
  return before + std::clamp<std::int64_t>(kTasks / tasks_of(problem), before, 3'000);
}

bool evaluations_are_few(const cost::Problem& problem) {
  constexpr std::int64_t kFew = 72;
  return one_shot_evaluations(problem) < kFew;
}

std::int64_t evaluations_in(const cost::Problem& problem, double seconds) {
  constexpr double kTasksPerSecond = 3e6;
  const double plans = seconds * kTasksPerSecond / static_cast<double>(tasks_of(problem));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(plans));
}

Budget budget_or_one_shot(const PlannerContext& context) {
  if (context.budget.limited()) return context.budget;
  return {.evaluations = one_shot_evaluations(context.problem())};
}

Tried best_start(BatchEvaluator& evaluator) {
  std::vector<decide::Strategy> strategies;
  for (NamedStrategy& baseline : baseline_strategies(evaluator.problem())) {
    strategies.push_back(std::move(baseline.strategy));
  }
  const std::vector<Measured> measured = evaluator.evaluate(strategies);
  std::size_t best = 0;
  for (std::size_t i = 1; i < measured.size(); ++i) {
    if (better(measured[i].evaluation, measured[best].evaluation)) best = i;
  }
  Tried start{strategies[best], measured[best].evaluation};
  if (start.evaluation.feasible) return start;
  for (Tried& tried : memory_fill(evaluator, {})) {
    if (better(tried.evaluation, start.evaluation)) start = std::move(tried);
  }
  return start;
}

bool sums_by_all_reduce(const decide::Strategy& strategy) {
  return std::ranges::any_of(strategy.units, [](const auto& unit) {
    return unit.replicas.size() > 1 && unit.sync == decide::SyncMethod::kAllReduce;
  });
}

std::vector<decide::Strategy> in_other_schedules(const decide::Strategy& strategy) {
  // Buckets are of all-reduces.
  const bool reduces = sums_by_all_reduce(strategy);
  std::vector<decide::Strategy> variants;
  for (decide::OrderPolicy order : decide::kSearchedOrders) {
    for (Bytes bucket : {Bytes{0}, decide::kHorovodBucketBytes}) {
      if (order == strategy.order && bucket == strategy.bucket_bytes) continue;
      if (bucket > 0 && !reduces) continue;
      variants.push_back(strategy);
      decide::set_plain_order(variants.back(), order);
      variants.back().bucket_bytes = bucket;
    }
  }
  return variants;
}

}  // namespace heterog::search
