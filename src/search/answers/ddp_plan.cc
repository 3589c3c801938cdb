// Shares of the batch, then of ever smaller micro-batches.
#include "search/answers/ddp_plan.h"

#include <utility>
#include <vector>

#include "decide/decisions.h"

namespace heterog::search {
namespace {

// Simulated plans for each further number of micro-batches: their shares are near the first ones'.
constexpr std::int64_t kEvaluations = 300;
// Whole numbers of samples can make one number of micro-batches slower than both beside it.
constexpr int kNoFaster = 2;

decide::Strategy strategy_of(const cost::Problem& problem, const Samples& samples,
                             std::int64_t micro_batches, bool in_shards) {
  return in_shards ? fsdp2_strategy(problem, samples, micro_batches)
                   : ddp_strategy(problem, samples, micro_batches);
}

}  // namespace

DdpResult search_ddp(BatchEvaluator& evaluator, const DdpOptions& options) {
  EXPECT(options.as_ddp || !options.in_shards);
  const cost::Problem& problem = evaluator.problem();
  std::vector<std::int64_t> counts = {1};
  for (std::int64_t count : decide::kPipelineParts) {
    if (count <= problem.batch && problem.batch % count == 0) counts.push_back(count);
  }
  DdpResult result;
  DdpPlan& best = result.best;
  int no_faster = 0;  // in a row
  for (std::int64_t count : counts) {
    if (count > 1 && (evaluator.spent() || no_faster == kNoFaster)) break;
    SharesResult found =
        search_shares(evaluator, {.evaluations = count == 1 ? options.evaluations : kEvaluations,
                                  .micro_batches = count,
                                  .as_ddp = options.as_ddp,
                                  .in_shards = options.in_shards,
                                  .until = (1 + evaluator.used()) / 2});
    if (count == 1) {
      result.even = std::move(found.even);
      result.proportional = std::move(found.proportional);
    } else if (!better(found.best.evaluation, best.evaluation)) {
      if (best.evaluation.feasible) ++no_faster;
      continue;
    }
    no_faster = 0;
    best = {std::move(found.best.samples), count, std::move(found.best.strategy),
            found.best.evaluation};
    if (!options.as_ddp) continue;
    // Weights are the samples, whatever the search had.
    best.strategy = strategy_of(problem, best.samples, count, options.in_shards);
    best.evaluation = evaluator.evaluate(best.strategy).evaluation;
  }
  return result;
}

std::optional<DdpPlan> exact_ddp(const cost::Problem& problem, const decide::Strategy& strategy,
                                 bool in_shards) {
  const std::int64_t count = strategy.micro_batches;
  if (!strategy.unit_of_op.empty() || strategy.units.empty() || problem.batch % count != 0) {
    return std::nullopt;
  }
  Samples samples = samples_of(problem, strategy.units[UnitId(0)], problem.batch / count);
  if (strategy_of(problem, samples, count, in_shards) != strategy) return std::nullopt;
  return DdpPlan{std::move(samples), count, strategy, {}};
}

}  // namespace heterog::search
