// Asks for a few strategies, which no planner counts.
#include "search/answers/devices_used.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "search/answers/better_order.h"

namespace heterog::search {

namespace {

// So little longer a step may be for devices to be left out.
constexpr double kAlmostAsFast = 0.01;
// The same before its order is improved, as that of the plan has been, in so many rounds.
constexpr double kBeforeOrdering = 0.03;
constexpr int kOrderRounds = 3;

}  // namespace

std::optional<NamedStrategy> best_together(oracle::Oracle& oracle) {
  std::vector<NamedStrategy> all = baseline_strategies(oracle.problem());
  std::erase_if(all, [](const NamedStrategy& one) { return one.name == "single"; });
  const NamedStrategy* best = nullptr;
  Evaluation least;
  // Those with servers take the longest to compile, and mostly lose: the others first.
  std::ranges::stable_partition(all, [](const NamedStrategy& one) {
    return one.strategy.units.raw().front().sync != decide::SyncMethod::kParameterServer;
  });
  BatchEvaluator evaluator(oracle);
  evaluator.give_up_beyond(1);
  const auto consider = [&](auto&& wanted) {
    for (const NamedStrategy& one : all) {
      if (!wanted(one)) continue;
      const Evaluation now = evaluator.evaluate(one.strategy).evaluation;
      if (best != nullptr && !better(now, least)) continue;
      best = &one;
      least = now;
    }
  };
  consider(
      [](const NamedStrategy& one) { return one.strategy.order == decide::OrderPolicy::kRank; });
  if (best == nullptr) return std::nullopt;
  consider([name = best->name](const NamedStrategy& one) { return one.name == name; });
  return *best;
}

SingleDevice best_single(BatchEvaluator& evaluator) {
  SingleDevice best;
  for (const NamedStrategy& one : baseline_strategies(evaluator.problem())) {
    if (one.name != "single") continue;
    const Evaluation now = evaluator.evaluate(one.strategy).evaluation;
    if (best.device.valid() && !better(now, best.evaluation)) continue;
    best = {one.strategy.units[UnitId(0)].replicas.front().device, now};
  }
  return best;
}

std::optional<FewerDevices> enough_devices(BatchEvaluator& evaluator,
                                           const decide::Strategy& strategy,
                                           const Evaluation& evaluation) {
  const bool ordered = decide::dispatch_order(strategy) == decide::OrderPolicy::kPriority;
  std::optional<FewerDevices> enough =
      leave_out(evaluator, strategy, evaluation,
                {.tolerance = ordered ? kBeforeOrdering : kAlmostAsFast,
                 .most = affordable_tries(evaluator.problem())});
  if (!enough || !ordered) return enough;
  if (auto in_order = better_order(evaluator.oracle(), enough->strategy, kOrderRounds)) {
    enough->strategy = std::move(in_order->strategy);
    enough->evaluation = in_order->evaluation;
  }
  if (to_seconds(enough->evaluation.step) > (1 + kAlmostAsFast) * to_seconds(evaluation.step)) {
    enough.reset();
  }
  return enough;
}

}  // namespace heterog::search
