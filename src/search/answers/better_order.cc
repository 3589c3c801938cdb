// Round by round, from several orders.
#include "search/answers/better_order.h"
#include "decide/decisions.h"

#include <algorithm>
#include <vector>

namespace heterog::search {
namespace {

using decide::OrderPolicy;
using decide::Pattern;
using decide::Strategy;

// An order that takes so many times as long as the best does not catch up.
constexpr double kCatchesUp = 1.125;

// No other order of a pipeline comes near its turns, and where it has most to gain is from there.
bool in_stages(const Strategy& strategy) {
  return strategy.pattern != Pattern::kNone && strategy.pattern != Pattern::kDepthFirst;
}

}  // namespace

std::optional<Tried> better_order(oracle::Oracle& oracle, const Strategy& strategy, int rounds,
                                  const std::optional<Evaluation>& known) {
  // Strict turns are an order already.
  if (rounds == 0 || strategy.strict) return std::nullopt;
  std::optional<Tried> best;
  Evaluation to_beat = known ? *known : oracle.measure_rounds(strategy).back().evaluation;
  const auto keep_better = [&](const Strategy& start, const std::vector<Measured>& measured) {
    for (std::size_t round = 0; round < measured.size(); ++round) {
      if (!better(measured[round].evaluation, to_beat)) continue;
      to_beat = measured[round].evaluation;
      best = Tried{start, to_beat};
      best->strategy.order_rounds = static_cast<int>(round);
    }
  };
  std::vector<Strategy> starts;
  for (OrderPolicy order : decide::kSearchedOrders) {
    if (in_stages(strategy)) break;
    Strategy& start = starts.emplace_back(strategy);
    decide::set_plain_order(start, order);
  }
  std::vector<Nanoseconds> steps;
  for (const Strategy& start : starts) {
    const std::vector<Measured> measured = oracle.measure_rounds(start);
    steps.push_back(measured.back().evaluation.step);
    keep_better(start, measured);
  }
  if (decide::dispatch_order(strategy) == OrderPolicy::kPriority) {
    starts.push_back(strategy);
    steps.push_back(to_beat.step);
  }
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (static_cast<double>(steps[i]) > kCatchesUp * static_cast<double>(to_beat.step)) continue;
    starts[i].order_rounds = std::min(starts[i].order_rounds + rounds, decide::kMostOrderRounds);
    keep_better(starts[i], oracle.measure_rounds(starts[i]));
  }
  return best;
}

}  // namespace heterog::search
