// A strategy as search sees it: who shares the work of each group, and how its gradients travel.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/strategy.h"
#include "cost/problem.h"
#include "oracle/oracle.h"

namespace heterog::planner {

using Replicas = std::vector<compiler::Replica>;
using ShareId = Id<struct ShareTag>;  // an entry of Candidate::shares

// Groups with equal replicas refer to one entry, so that a change of that entry's weights moves
// them all and their slices stay aligned.
struct Candidate {
  IdVector<ShareId, Replicas> shares;  // distinct
  IdVector<GroupId, ShareId> share_of;
  IdVector<GroupId, compiler::SyncMethod> sync_of;
  IdVector<GroupId, bool> recompute_of;
  compiler::OrderPolicy order = compiler::OrderPolicy::kRank;
  Bytes bucket_bytes = 0;
};

// What a search moves from.
struct Incumbent {
  Candidate candidate;
  oracle::Measured measured;
};

// The entry with these replicas, added if there is none.
ShareId intern(Candidate& candidate, const Replicas& replicas);

// On the problem's groups, one instance per device, without the optional parts (sync of single
// parameters, priorities).
bool is_plain(const compiler::Strategy& strategy);
// The nearest plain strategy: every group as its first op has it, and queued ranks in place of
// priorities; the same strategy if the units are unions of groups and nothing optional is used.
compiler::Strategy to_plain(const cost::Problem& problem, const compiler::Strategy& strategy);
Candidate to_candidate(const compiler::Strategy& strategy);
compiler::Strategy to_strategy(const Candidate& candidate);

// A change to a candidate. It names groups and replicas, never entries, so that it can be applied
// to another candidate than the one that it was made for.
struct Move {
  std::vector<GroupId> groups;
  std::optional<Replicas> replicas;  // of `groups`
  std::optional<compiler::SyncMethod> sync;
  std::optional<bool> recompute;
  // Every group with the first replicas of a pair gets the second, all pairs at once.
  std::vector<std::pair<Replicas, Replicas>> reweigh;
  std::optional<compiler::OrderPolicy> order;
  std::optional<Bytes> bucket_bytes;
};
Candidate apply(const Candidate& candidate, const Move& move);

}  // namespace heterog::planner
