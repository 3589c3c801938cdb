// A drawn plan as a strategy.
#include "learn/formula/formula_strategy.h"

#include "decide/micro_batches.h"

namespace heterog::learn {
namespace {

using decide::SyncMethod;

SyncMethod sync_of(LayoutMode mode, const decide::UnitDecision& unit) {
  if (unit.replicas.size() == 1) return SyncMethod::kAllReduce;
  switch (mode) {
    case LayoutMode::kServersInstead:
      return SyncMethod::kParameterServer;
    case LayoutMode::kReduceInstead:
      return SyncMethod::kAllReduce;
    case LayoutMode::kSharded:
      return SyncMethod::kSharded;
    case LayoutMode::kAllReduce:
    case LayoutMode::kServers:
    case LayoutMode::kMixed:
    case LayoutMode::kFewerReduce:
    case LayoutMode::kFewerServers:
    case LayoutMode::kStages:
      return unit.sync;
  }
  return unit.sync;
}

std::int64_t most_parts(const cost::Problem& problem, const decide::Strategy& strategy,
                        std::int64_t wanted) {
  std::int64_t parts = 1;
  for (const std::int64_t possible : decide::possible_parts(problem, strategy)) {
    if (possible <= wanted) parts = std::max(parts, possible);
  }
  return parts;
}

}  // namespace

decide::Strategy formula_strategy(const cost::Problem& problem, const space::ActionSpace& space,
                                  const FormulaTerms& terms, const DrawnPlan& plan) {
  const auto value = [&](Knob knob) { return plan.choice[static_cast<std::size_t>(knob)]; };
  const LayoutMode mode = mode_of(value(Knob::kLayout));
  std::vector<space::ActionId> rows;
  for (const std::uint32_t row : plan.path) rows.push_back(terms.rows[row]);
  decide::Strategy strategy = space.strategy(rows);
  for (decide::UnitDecision& unit : strategy.units) {
    unit.sync = sync_of(mode, unit);
    unit.recompute = value(Knob::kRecompute) == 1;
  }
  if (mode == LayoutMode::kStages) {
    const std::int64_t parts = most_parts(problem, strategy, kPartValues[value(Knob::kParts)]);
    return decide::in_pipeline(problem, std::move(strategy), parts);
  }
  strategy.order = kOrderValues[value(Knob::kOrder)];
  if (matters(Knob::kBucket, mode)) strategy.bucket_bytes = kBucketValues[value(Knob::kBucket)];
  return strategy;
}

}  // namespace heterog::learn
