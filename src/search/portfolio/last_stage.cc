// What was found, on as few devices as it needs, in a better order.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "decide/decisions.h"
#include "search/moves/move.h"
#include "search/portfolio/stages.h"
#include "search/starts/balanced_servers.h"

namespace heterog::search::portfolio {
namespace {

// Tries to leave devices out, and of several servers, are so small a part of a budget.
constexpr std::int64_t kPlansPerTry = 20;
// On fewer devices a step may be longer by this part of itself before its order is improved.
constexpr double kCatchesUp = 0.01;

// Plans with several servers, five in the first phase of a budget, two in each later one.
constexpr std::int64_t kTriesOfServers = 9;

// That are simulated in a moment.
bool are_few_transfers(const cost::Problem& problem) {
  constexpr double kMostTransfers = 200'000;
  return transfers_of_several_servers(problem) <= kMostTransfers;
}

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
  return std::min(most, *context.budget.evaluations / kPlansPerTry);
}

std::int64_t tries_of_servers(const PlannerContext& context) {
  if (!context.budget.evaluations || !are_few_transfers(context.problem())) return 0;
  return std::min(kTriesOfServers, *context.budget.evaluations / kPlansPerTry);
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
  PlannerResult& result = search.result;
  std::vector<decide::Strategy> strategies = {result.strategy};
  std::vector<std::string> names = {result.found_by};
  if (const auto placement = std::exchange(search.placement, std::nullopt)) {
    const auto& [strategy, evaluation] = placement->tried;
    strategies.push_back(strategy);
    names.push_back(placement->name);
    consider(search, strategy, evaluation, placement->name);
  }
  if (!with(search, Part::kOrder)) return;
  // What is a little behind in its own order may be ahead in a better one.
  for (const std::vector<Start>* starts : {&search.starts, &search.pipelines}) {
    if (starts->empty() || starts->front().tried.strategy == strategies.front()) continue;
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
  result.found_by = ordered[fewer] ? reordered(names.front()) : names.front();
}

void share_servers(Search& search) {
  const cost::Problem& problem = search.context.problem();
  if (!with(search, Part::kSeveralServers) || search.context.budget.expired() ||
      !are_few_transfers(problem)) {
    return;
  }
  std::vector<decide::Strategy> strategies;
  std::vector<std::string> names;
  const decide::Strategy& found = search.result.strategy;
  for (const bool of_all : {true, false}) {
    decide::Strategy shared = with_several_servers(problem, found, of_all);
    if (shared.sync == found.sync || std::ranges::count(strategies, shared) > 0) continue;
    strategies.push_back(std::move(shared));
    names.push_back(search.result.found_by + " + several servers");
  }
  const decide::Strategy even = partitioned_ps(problem, ServerParts::kBytes);
  for (decide::OrderPolicy order : decide::kSearchedOrders) {
    strategies.push_back(even);
    strategies.back().order = order;
    names.emplace_back("partitioned-ps");
  }
  const auto& most = search.context.budget.evaluations;
  if (most && search.evaluator.evaluations() + std::ssize(strategies) > *most) return;
  const std::vector<Measured> measured = search.evaluator.evaluate(strategies);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    consider(search, strategies[i], measured[i].evaluation, names[i]);
  }
}

}  // namespace heterog::search::portfolio
