// Between strategies and candidates, and the application of moves.
#include "planner/candidate.h"

#include <algorithm>
#include <utility>

namespace heterog::planner {

ShareId intern(Candidate& candidate, const Replicas& replicas) {
  for (ShareId share : id_range<ShareId>(candidate.shares.size())) {
    if (candidate.shares[share] == replicas) return share;
  }
  return candidate.shares.push_back(replicas);
}

bool is_plain(const compiler::Strategy& strategy) {
  const auto merges = [](const compiler::UnitDecision& unit) {
    return unit.instances == compiler::Instances::kPerDevice;
  };
  return strategy.unit_of_op.empty() && strategy.sync.empty() && strategy.priorities.empty() &&
         std::all_of(strategy.units.begin(), strategy.units.end(), merges);
}

compiler::Strategy to_plain(const cost::Problem& problem, const compiler::Strategy& strategy) {
  compiler::Strategy plain{.order = strategy.order, .bucket_bytes = strategy.bucket_bytes};
  if (plain.order == compiler::OrderPolicy::kPriority) {
    plain.order = compiler::OrderPolicy::kRankQueued;
  }
  for (GroupId group : id_range<GroupId>(problem.grouping.count())) {
    const UnitId unit = strategy.unit_of_op.empty()
                            ? UnitId(group.value())
                            : strategy.unit_of_op[problem.grouping.members[group][0]];
    compiler::UnitDecision decision = strategy.units[unit];
    decision.instances = compiler::Instances::kPerDevice;
    plain.units.push_back(std::move(decision));
  }
  return plain;
}

Candidate to_candidate(const compiler::Strategy& strategy) {
  EXPECT(is_plain(strategy));
  Candidate candidate{.order = strategy.order, .bucket_bytes = strategy.bucket_bytes};
  for (const compiler::UnitDecision& decision : strategy.units) {
    candidate.share_of.push_back(intern(candidate, decision.replicas));
    candidate.sync_of.push_back(decision.sync);
    candidate.recompute_of.push_back(decision.recompute);
  }
  return candidate;
}

compiler::Strategy to_strategy(const Candidate& candidate) {
  compiler::Strategy strategy;
  strategy.units.reserve(candidate.share_of.size());
  for (GroupId group : id_range<GroupId>(candidate.share_of.size())) {
    const Replicas& replicas = candidate.shares[candidate.share_of[group]];
    // One replica has nothing to aggregate: one spelling of it, so that repeats are seen.
    strategy.units.push_back(
        {.replicas = replicas,
         .sync = replicas.size() == 1 ? compiler::SyncMethod::kAllReduce : candidate.sync_of[group],
         .recompute = candidate.recompute_of[group]});
  }
  strategy.order = candidate.order;
  strategy.bucket_bytes = candidate.bucket_bytes;
  return strategy;
}

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
  if (move.order) next.order = *move.order;
  if (move.bucket_bytes) next.bucket_bytes = *move.bucket_bytes;

  // Entries that no group uses any more would only pile up.
  Candidate packed{.order = next.order, .bucket_bytes = next.bucket_bytes};
  packed.sync_of = std::move(next.sync_of);
  packed.recompute_of = std::move(next.recompute_of);
  for (ShareId share : next.share_of) packed.share_of.push_back(intern(packed, next.shares[share]));
  return packed;
}

}  // namespace heterog::planner
