// Between strategies and candidates, and the application of moves.
#include "search/moves/candidate.h"

#include <algorithm>
#include <utility>

namespace heterog::search {

ShareId intern(Candidate& candidate, const Replicas& replicas) {
  for (ShareId share : id_range<ShareId>(candidate.shares.size())) {
    if (candidate.shares[share] == replicas) return share;
  }
  return candidate.shares.push_back(replicas);
}

bool is_plain(const decide::Strategy& strategy) {
  return strategy.unit_of_op.empty() && strategy.sync.empty() && strategy.priorities.empty() &&
         strategy.order_rounds == 0 && strategy.micro_batches == 1;
}

decide::Strategy to_plain(const cost::Problem& problem, const decide::Strategy& strategy) {
  decide::Strategy plain{.order = strategy.order, .bucket_bytes = strategy.bucket_bytes};
  if (plain.order == decide::OrderPolicy::kPriority) {
    plain.order = decide::OrderPolicy::kRankQueued;
  }
  for (GroupId group : id_range<GroupId>(problem.grouping.count())) {
    const UnitId unit = strategy.unit_of_op.empty()
                            ? UnitId(group.value())
                            : strategy.unit_of_op[problem.grouping.members[group][0]];
    decide::UnitDecision decision = strategy.units[unit];
    decision.in_turn = false;
    plain.units.push_back(std::move(decision));
  }
  return plain;
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

Candidate to_candidate(const decide::Strategy& strategy) {
  EXPECT(strategy.priorities.empty());
  Candidate candidate;
  for (const decide::UnitDecision& decision : strategy.units) {
    candidate.share_of.push_back(intern(candidate, decision.replicas));
    candidate.sync_of.push_back(decision.sync);
    candidate.recompute_of.push_back(decision.recompute);
    candidate.in_turn_of.push_back(decision.in_turn);
  }
  candidate.rest = strategy;
  candidate.rest.units.clear();
  return candidate;
}

decide::Strategy to_strategy(const Candidate& candidate) {
  decide::Strategy strategy = candidate.rest;
  strategy.units.reserve(candidate.share_of.size());
  for (GroupId group : id_range<GroupId>(candidate.share_of.size())) {
    const Replicas& replicas = candidate.shares[candidate.share_of[group]];
    // One replica has nothing to aggregate: one spelling of it, so that repeats are seen.
    strategy.units.push_back(
        {.replicas = replicas,
         .sync = replicas.size() == 1 ? decide::SyncMethod::kAllReduce : candidate.sync_of[group],
         .recompute = candidate.recompute_of[group],
         .in_turn = replicas.size() > 1 && candidate.in_turn_of[group]});
  }
  return strategy;
}

namespace {

// Strict turns go with an order without priorities and rounds, others with theirs, improved once.
void set_strict(decide::Strategy& rest, bool strict) {
  rest.strict = strict;
  rest.order = strict ? decide::OrderPolicy::kRankQueued : decide::OrderPolicy::kPriority;
  rest.order_rounds = strict ? 0 : 1;
}

}  // namespace

Candidate apply(const Candidate& candidate, const Move& move) {
  Candidate next = candidate;
  for (const auto& [from, to] : move.reweigh) {
    const ShareId with = intern(next, to);
    for (GroupId group : id_range<GroupId>(next.share_of.size())) {
      if (candidate.shares[candidate.share_of[group]] == from) next.share_of[group] = with;
    }
  }
  if (move.replicas) {
    const ShareId share = intern(next, *move.replicas);
    for (GroupId group : move.groups) next.share_of[group] = share;
  }
  if (move.sync) {
    for (GroupId group : move.groups) next.sync_of[group] = *move.sync;
  }
  if (move.recompute) {
    for (GroupId group : move.groups) next.recompute_of[group] = *move.recompute;
  }
  if (move.order) next.rest.order = *move.order;
  if (move.bucket_bytes) next.rest.bucket_bytes = *move.bucket_bytes;
  if (move.micro_batches) next.rest.micro_batches = *move.micro_batches;
  if (move.pattern) next.rest.pattern = *move.pattern;
  if (move.strict) set_strict(next.rest, *move.strict);

  // Entries that no group uses any more would only pile up.
  Candidate packed{.rest = std::move(next.rest)};
  packed.sync_of = std::move(next.sync_of);
  packed.recompute_of = std::move(next.recompute_of);
  packed.in_turn_of = std::move(next.in_turn_of);
  for (ShareId share : next.share_of) packed.share_of.push_back(intern(packed, next.shares[share]));
  return packed;
}

}  // namespace heterog::search
