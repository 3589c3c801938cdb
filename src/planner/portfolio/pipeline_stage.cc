// Pipelines, and a better order for those that may come before all else with it.
#include <algorithm>

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
constexpr std::size_t kPipelinesToReorder = 4;
constexpr const char* kPipeline = "pipeline";

double times_the_best(const Search& search, double factor) {
  const Evaluation& best = search.result.evaluation;
  return best.feasible ? factor * to_seconds(best.step) : 1e30;
}

// The fastest of those that a better order may bring before all else: a fifth of a step is gained
// at times, and the rest of the search has to know. Strict turns are an order already.
void reorder_pipelines(Search& search, const TriedPipelines& tried) {
  using One = TriedPipelines::One;
  const double longest = times_the_best(search, kGainsByOrder);
  std::vector<One> all = tried.all;
  std::erase_if(all, [&](const One& one) {
    return !one.evaluation.feasible || one.how.keeping == Keeping::kStrictly ||
           to_seconds(one.evaluation.step) > longest;
  });
  std::ranges::stable_sort(all, better, &One::evaluation);
  if (all.size() > kPipelinesToReorder) all.resize(kPipelinesToReorder);
  std::vector<compiler::Strategy> strategies;
  for (const One& one : all) strategies.push_back(tried.strategy(search.context.problem(), one));
  for (const auto& found : better_orders(search, strategies)) {
    if (!found) continue;
    consider(search, found->strategy, found->measured.evaluation, reordered(kPipeline));
  }
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
  const cost::Problem& problem = search.context.problem();
  consider(search, tried.strategy(problem, *best), best->evaluation, kPipeline);
  reorder_pipelines(search, tried);
}

}  // namespace heterog::planner::portfolio
