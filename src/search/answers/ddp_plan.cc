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

class DdpSearch {
 public:
  DdpSearch(BatchEvaluator& evaluator, const DdpOptions& options)
      : evaluator_(evaluator), problem_(evaluator.problem()), options_(options) {
    for (std::int64_t count : decide::kPipelineParts) {
      if (count <= problem_.batch && problem_.batch % count == 0) counts_.push_back(count);
    }
  }

  DdpResult run() {
    const bool alone = counts_.size() == 1;
    take(0, alone ? ClimbShares::kAlways : ClimbShares::kIfTheyFit);
    if (alone) return std::move(result_);
    const std::size_t first = fits_ ? 1 : fewest_that_fit();
    int no_faster = 0;  // in a row
    for (std::size_t i = first; i < counts_.size(); ++i) {
      if (evaluator_.spent() || no_faster == kNoFaster) break;
      if (take(i, ClimbShares::kAlways)) {
        no_faster = 0;
      } else if (result_.best.evaluation.feasible) {
        ++no_faster;
      }
    }
    return std::move(result_);
  }

 private:
  // Whether shares for this number of micro-batches are the best so far, which they then are. The
  // whole batch comes first.
  bool take(std::size_t index, ClimbShares climb) {
    const std::int64_t count = counts_[index];
    SharesResult found =
        search_shares(evaluator_, {.evaluations = index == 0 ? options_.evaluations : kEvaluations,
                                   .micro_batches = count,
                                   .as_ddp = options_.as_ddp,
                                   .in_shards = options_.in_shards,
                                   .climb = climb,
                                   .until = (1 + evaluator_.used()) / 2});
    DdpPlan& best = result_.best;
    if (index == 0) {
      result_.even = std::move(found.even);
      result_.proportional = std::move(found.proportional);
    }
    fits_ = found.best.evaluation.feasible;
    if (index != 0 && !better(found.best.evaluation, best.evaluation)) return false;
    best = {std::move(found.best.samples), count, std::move(found.best.strategy),
            found.best.evaluation};
    if (options_.as_ddp) {  // weights are the samples, whatever the search had
      best.strategy = strategy_of(problem_, best.samples, count, options_.in_shards);
      best.evaluation = evaluator_.evaluate(best.strategy).evaluation;
    }
    return true;
  }

  bool fits_with(std::size_t index) {
    take(index, ClimbShares::kNever);
    return fits_;
  }

  // The index of the fewest micro-batches that fit, where the batch as a whole does not. Those of
  // two samples are tried first: more devices than one share them, and where these do not fit
  // nothing does.
  std::size_t fewest_that_fit() {
    std::size_t fits = counts_.size() - 1;
    while (fits > 1 && problem_.batch / counts_[fits] < 2) --fits;
    if (!fits_with(fits)) return fits;
    std::size_t too_few = 0;
    while (fits - too_few > 1 && !evaluator_.spent()) {
      const std::size_t middle = (fits + too_few) / 2;
      (fits_with(middle) ? fits : too_few) = middle;
    }
    return fits;
  }

  BatchEvaluator& evaluator_;
  const cost::Problem& problem_;
  const DdpOptions& options_;
  std::vector<std::int64_t> counts_ = {1};
  DdpResult result_;
  bool fits_ = false;  // what was found last
};

}  // namespace

DdpResult search_ddp(BatchEvaluator& evaluator, const DdpOptions& options) {
  EXPECT(options.as_ddp || !options.in_shards);
  return DdpSearch(evaluator, options).run();
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
