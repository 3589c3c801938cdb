// A change to a strategy, and what search moves from.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "oracle/oracle.h"

namespace heterog::search {

using Replicas = std::vector<decide::Replica>;

// Groups are the strategy's units: those of the problem, or of with_units().
struct Incumbent {
  decide::Strategy strategy;
  oracle::Measured measured;
};

inline const decide::UnitDecision& decision_of(const decide::Strategy& strategy, GroupId group) {
  return strategy.units[UnitId(group.value())];
}

// The replicas that units have, each once, in the order of the first unit that has them.
std::vector<Replicas> distinct_replicas(const decide::Strategy& strategy);

// One spelling of a plan, so that repeats are seen: a single replica has nothing to aggregate and
// takes no turns. What search moves from keeps what such a unit did before it had one replica, for
// when it has several again.
decide::Strategy in_one_spelling(decide::Strategy strategy);

// Without what moves would break: syncs of single parameters and, of a batch as a whole, priorities
// of its own.
decide::Strategy movable(decide::Strategy strategy);

// The problem with a strategy's units in place of its groups, for who changes them.
cost::Problem with_units(const cost::Problem& problem, const decide::Strategy& strategy);

// Names groups and replicas, so that it can be applied to another strategy than the one that it was
// made for.
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
decide::Strategy apply(const decide::Strategy& strategy, const Move& move);

}  // namespace heterog::search
