// What a case may decide as a whole, and strategies that are decided so.
#include "policy/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compiler/accumulate.h"
#include "planner/starts.h"

namespace heterog::policy {

ScheduleSpace schedule_space(const cost::Problem& problem, compiler::OrderPolicy usual_order) {
  const auto at = std::ranges::find(kScheduleOrders, usual_order);
  EXPECT(at != kScheduleOrders.end());
  ScheduleSpace space;
  space.usual[kOrder] = static_cast<std::uint8_t>(at - kScheduleOrders.begin());
  space.allowed.fill(true);
  for (std::size_t i = 0; i < kScheduleOrders.size(); ++i) {
    space.allowed[first_option(kOrder) + i] =
        i == space.usual[kOrder] ||
        std::ranges::find(compiler::kSearchedOrders, kScheduleOrders[i]) !=
            compiler::kSearchedOrders.end();
  }
  const bool costly = planner::evaluations_are_costly(problem);
  for (std::size_t i = 1; i < kScheduleMicroBatches.size(); ++i) {
    space.allowed[first_option(kMicroBatches) + i] =
        !costly && kScheduleMicroBatches[i] <= problem.batch;
  }
  return space;
}

compiler::Strategy scheduled(const cost::Problem& problem, compiler::Strategy strategy,
                             const Schedule& schedule) {
  strategy.order = kScheduleOrders[schedule[kOrder]];
  strategy.bucket_bytes = kScheduleBuckets[schedule[kBucket]];
  for (compiler::UnitDecision& unit : strategy.units) unit.recompute = schedule[kRecompute] != 0;
  const std::int64_t micro_batches = kScheduleMicroBatches[schedule[kMicroBatches]];
  if (micro_batches == 1) return strategy;
  return compiler::accumulate(problem, strategy, micro_batches);
}

}  // namespace heterog::policy
