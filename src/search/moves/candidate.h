// A strategy as search sees it: its units, with placements that equal ones share, and the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "oracle/oracle.h"

namespace heterog::search {

using Replicas = std::vector<decide::Replica>;
using ShareId = Id<struct ShareTag>;  // an entry of Candidate::shares

// Groups are the strategy's units: those of the problem, or of with_units(). Groups with equal
// replicas refer to one entry, so that a change of that entry's weights moves them all and their
// slices stay aligned.
struct Candidate {
  IdVector<ShareId, Replicas> shares;  // distinct
  IdVector<GroupId, ShareId> share_of;
  IdVector<GroupId, decide::SyncMethod> sync_of;
  IdVector<GroupId, bool> recompute_of;
  IdVector<GroupId, bool> in_turn_of;
  decide::Strategy rest;  // all that is no unit's: order, buckets, micro-batches; no units
};

// What a search moves from.
struct Incumbent {
  Candidate candidate;
  oracle::Measured measured;
};

// The entry with these replicas, added if there is none.
ShareId intern(Candidate& candidate, const Replicas& replicas);

// The problem with a strategy's units in place of its groups, for who changes them.
cost::Problem with_units(const cost::Problem& problem, const decide::Strategy& strategy);

// On the problem's groups, the batch as a whole, without the optional parts (sync of single
// parameters, priorities).
bool is_plain(const decide::Strategy& strategy);
// The nearest plain strategy: every group as its first op has it, and queued ranks in place of
// priorities; the same strategy if the units are unions of groups and nothing optional is used.
decide::Strategy to_plain(const cost::Problem& problem, const decide::Strategy& strategy);
// The strategy has no priorities of its own: they would not be those of what it is changed to.
Candidate to_candidate(const decide::Strategy& strategy);
decide::Strategy to_strategy(const Candidate& candidate);

// A change to a candidate. It names groups and replicas, never entries, so that it can be applied
// to another candidate than the one that it was made for.
struct Move {
  std::vector<GroupId> groups;
  std::optional<Replicas> replicas;  // of `groups`
  std::optional<decide::SyncMethod> sync;
  std::optional<bool> recompute;
  // Every group with the first replicas of a pair gets the second, all pairs at once.
  std::vector<std::pair<Replicas, Replicas>> reweigh;
  std::optional<decide::OrderPolicy> order;
  std::optional<Bytes> bucket_bytes;
  std::optional<std::int64_t> micro_batches;
  std::optional<decide::Pattern> pattern;
  std::optional<bool> strict;  // of a pattern; priorities follow it if not
};
Candidate apply(const Candidate& candidate, const Move& move);

}  // namespace heterog::search
