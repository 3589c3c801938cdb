// A drawn plan as a strategy.
#include "learn/formula/formula_strategy.h"

#include "search/starts/balanced_servers.h"

namespace heterog::learn {
namespace {

using decide::SyncMethod;

// More transfers of several servers than these make a step that takes long to simulate.
constexpr double kMostTransfers = 200'000;

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
    case LayoutMode::kPipeline:
    case LayoutMode::kOtherPipeline:
      return unit.sync;
  }
  return unit.sync;
}

}  // namespace

decide::Strategy formula_strategy(const cost::Problem& problem, const space::ActionSpace& space,
                                  const FormulaTerms& terms, const DrawnPlan& plan) {
  const auto value = [&](Knob knob) { return plan.choice[static_cast<std::size_t>(knob)]; };
  const LayoutMode mode = mode_of(value(Knob::kLayout));
  const bool again = value(Knob::kRecompute) == 1;
  if (is_pipeline(mode)) {
    return pipeline_strategy(problem, *pipeline_of(terms, value(Knob::kLayout), again),
                             kPatternValues[value(Knob::kOrder)]);
  }
  std::vector<space::ActionId> rows;
  for (const std::uint32_t row : plan.path) rows.push_back(terms.rows[row]);
  decide::Strategy strategy = space.strategy(rows);
  for (decide::UnitDecision& unit : strategy.units) {
    unit.sync = sync_of(mode, unit);
    unit.recompute = again;
  }
  strategy.order = kOrderValues[value(Knob::kOrder)];
  if (matters(Knob::kBucket, mode)) strategy.bucket_bytes = kBucketValues[value(Knob::kBucket)];
  if (matters(Knob::kServers, mode) && value(Knob::kServers) == kSeveralServers &&
      search::transfers_of_several_servers(problem) <= kMostTransfers) {
    strategy = search::with_several_servers(problem, std::move(strategy), /*of_all=*/false);
  }
  return strategy;
}

}  // namespace heterog::learn
