// Shares of the batch, then of ever smaller micro-batches.
#include "search/answers/ddp_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "decide/decisions.h"

namespace heterog::search {
namespace {

// Simulated plans for each further number of micro-batches: their shares are near the first ones'.
constexpr std::int64_t kEvaluations = 300;

}  // namespace

DdpPlan search_ddp(BatchEvaluator& evaluator) {
  const std::int64_t batch = evaluator.problem().batch;
  std::vector<std::int64_t> counts = {1};
  for (std::int64_t count : decide::kPipelineParts) {
    if (count <= batch && batch % count == 0) counts.push_back(count);
  }
  DdpPlan best;
  for (std::int64_t count : counts) {
    if (count > 1 && evaluator.spent()) break;
    SharesOptions options{.micro_batches = count, .as_ddp = true};
    if (count > 1) options.evaluations = kEvaluations;
    // Of what is left of a budget, half.
    options.evaluations = std::min(options.evaluations, evaluator.evaluations_left() / 2);
    const Shares found = search_shares(evaluator, options).best;
    if (count > 1 && !better(found.evaluation, best.evaluation)) {
      if (best.evaluation.feasible) break;
      continue;
    }
    // Weights are the samples, whatever the search had.
    best = {found.samples, count, ddp_strategy(evaluator.problem(), found.samples, count), {}};
    best.evaluation = evaluator.evaluate(best.strategy).evaluation;
  }
  return best;
}

std::optional<DdpPlan> exact_ddp(const cost::Problem& problem, const decide::Strategy& strategy) {
  const std::int64_t count = strategy.micro_batches;
  if (!strategy.unit_of_op.empty() || strategy.units.empty() || problem.batch % count != 0) {
    return std::nullopt;
  }
  Samples samples = samples_of(problem, strategy.units[UnitId(0)], problem.batch / count);
  if (ddp_strategy(problem, samples, count) != strategy) return std::nullopt;
  return DdpPlan{std::move(samples), count, strategy, {}};
}

}  // namespace heterog::search
