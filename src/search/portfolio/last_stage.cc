// What was found, on as few devices as it needs, in a better order.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "search/moves/move.h"
#include "search/portfolio/stages.h"

namespace heterog::search::portfolio {
namespace {

// Tries to leave devices out are so small a part of a budget.
constexpr std::int64_t kPlansPerTryToLeaveOut = 20;
// On fewer devices a step may be longer by this part of itself before its order is improved.
constexpr double kCatchesUp = 0.01;

void take(Search& search, const FewerDevices& fewer) {
  logger().debug("{} plans: {:.6f} s without {} of the devices", search.evaluator.evaluations(),
                 to_seconds(fewer.evaluation.step), fewer.left_out.size());
  search.result.strategy = fewer.strategy;
  search.result.evaluation = fewer.evaluation;
}

}  // namespace

std::int64_t tries_to_leave_out(const PlannerContext& context) {
  const std::int64_t most = affordable_tries(context.problem());
  if (!context.budget.evaluations) return most;
  return std::min(most, *context.budget.evaluations / kPlansPerTryToLeaveOut);
}

void leave_devices_out(Search& search) {
  PlannerResult& result = search.result;
  if (!with(search, Part::kLeaveOut)) return;
  const std::int64_t most = tries_to_leave_out(search.context);
  const auto fewer =
      leave_out(search.evaluator, result.strategy, result.evaluation, {.most = most});
  if (fewer) take(search, *fewer);
  search.fewer = leave_out(search.evaluator, result.strategy, result.evaluation,
                           {.tolerance = kCatchesUp, .most = most});
}

void improve_orders(Search& search) {
  if (!with(search, Part::kOrder)) return;
  PlannerResult& result = search.result;
  std::vector<decide::Strategy> strategies = {result.strategy};
  std::vector<std::string> names = {result.found_by};
  // What is a little behind in its own order may be ahead in a better one.
  for (const std::vector<Start>* starts : {&search.starts, &search.pipelines}) {
    if (starts->empty() || starts->front().tried.strategy == result.strategy) continue;
    strategies.push_back(starts->front().tried.strategy);
    names.push_back(starts->front().name);
  }
  const std::size_t fewer = strategies.size();
  if (search.fewer) strategies.push_back(search.fewer->strategy);
  const auto ordered = better_orders(search, strategies);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const auto& found = ordered[i]) {
      consider(search, found->strategy, found->evaluation, reordered(names[i]));
    }
  }
  if (!search.fewer) return;
  if (const auto& found = ordered[fewer]) {
    search.fewer->strategy = found->strategy;
    search.fewer->evaluation = found->evaluation;
  }
  if (better(result.evaluation, search.fewer->evaluation)) return;
  take(search, *search.fewer);
  if (ordered[fewer]) result.found_by = reordered(result.found_by);
}

}  // namespace heterog::search::portfolio
