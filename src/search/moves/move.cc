// What moves make of strategies.
#include "search/moves/move.h"

#include <algorithm>

namespace heterog::search {

namespace {

// Strict turns go with an order without priorities and rounds, others with theirs, improved once.
void set_strict(decide::Strategy& strategy, bool strict) {
  strategy.strict = strict;
  strategy.order = strict ? decide::OrderPolicy::kRankQueued : decide::OrderPolicy::kPriority;
  strategy.order_rounds = strict ? 0 : 1;
}

}  // namespace

std::vector<Replicas> distinct_replicas(const decide::Strategy& strategy) {
  std::vector<Replicas> distinct;
  for (const decide::UnitDecision& unit : strategy.units) {
    if (std::ranges::find(distinct, unit.replicas) == distinct.end()) {
      distinct.push_back(unit.replicas);
    }
  }
  return distinct;
}

decide::Strategy in_one_spelling(decide::Strategy strategy) {
  for (decide::UnitDecision& unit : strategy.units) {
    if (unit.replicas.size() > 1) continue;
    unit.sync = decide::SyncMethod::kAllReduce;
    unit.in_turn = false;
  }
  return strategy;
}

decide::Strategy movable(decide::Strategy strategy) {
  strategy.sync.clear();
  const bool urgent = decide::dispatch_order(strategy) == decide::OrderPolicy::kPriority;
  if (urgent && strategy.micro_batches == 1) {
    decide::set_plain_order(strategy, decide::OrderPolicy::kRankQueued);
  }
  return strategy;
}

cost::Problem with_units(const cost::Problem& problem, const decide::Strategy& strategy) {
  cost::Problem made = problem;
  if (strategy.unit_of_op.empty()) return made;
  std::vector<std::vector<OpId>> members(strategy.units.size());
  for (OpId op : problem.graph->op_ids()) {
    const UnitId unit = strategy.unit_of_op[op];
    made.grouping.group_of[op] = GroupId(unit.value());
    members[unit.value()].push_back(op);
  }
  made.grouping.members = {};
  for (const std::vector<OpId>& ops : members) made.grouping.members.push_row(ops);
  return made;
}

decide::Strategy apply(const decide::Strategy& strategy, const Move& move) {
  decide::Strategy next = strategy;
  for (const auto& [from, to] : move.reweigh) {
    for (UnitId unit : id_range<UnitId>(next.units.size())) {
      if (strategy.units[unit].replicas == from) next.units[unit].replicas = to;
    }
  }
  for (GroupId group : move.groups) {
    decide::UnitDecision& unit = next.units[UnitId(group.value())];
    if (move.replicas) unit.replicas = *move.replicas;
    if (move.sync) unit.sync = *move.sync;
    if (move.recompute) unit.recompute = *move.recompute;
  }
  if (move.bucket_bytes) next.bucket_bytes = *move.bucket_bytes;
  if (move.micro_batches) next.micro_batches = *move.micro_batches;
  if (move.pattern) next.pattern = *move.pattern;
  if (move.strict) set_strict(next, *move.strict);
  // Made for another strategy: turns that are priorities have their own order.
  const bool has_own_order = next.pattern != decide::Pattern::kNone && !next.strict;
  if (move.order && !has_own_order) next.order = *move.order;
  return next;
}

}  // namespace heterog::search
