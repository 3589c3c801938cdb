// The space that AutoSync searches: how each parameter of a data parallel step is synchronised.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::search {

// A parameter that several devices hold.
struct SyncVariable {
  TensorId parameter;
  Bytes bytes = 0;
  std::int64_t rows = 1;      // that several servers may share; 1: it has one server
  bool by_rows = false;       // its update goes by rows, so that it can be sharded
  std::uint32_t holders = 0;  // of the same number: held by the same devices
};

struct SyncSpace {
  const cost::Problem* problem = nullptr;
  std::vector<SyncVariable> variables;  // as their gradients become ready in the backward pass
  Bytes bytes = 0;                      // of all
  std::vector<DeviceId> servers;
  IdVector<DeviceId, double> rates;  // bytes a second, relative to each other
};
// Under even shares.
SyncSpace sync_space(const cost::Problem& problem);

// How one variable is synchronised.
struct SyncChoice {
  decide::SyncMethod method = decide::SyncMethod::kAllReduce;
  std::uint32_t parts = 1;               // kParameterServer
  std::vector<decide::Replica> servers;  // of these parts, each with how many it has
  friend bool operator==(const SyncChoice&, const SyncChoice&) = default;
};

// A strategy of the space.
struct SyncPoint {
  std::vector<SyncChoice> choices;  // parallel to SyncSpace::variables
  // Parallel to them: whether groups end behind this variable; behind the last they do. Between two
  // ends, what is all-reduced shares a collective, and so does what is sharded.
  std::vector<std::uint8_t> ends;
  decide::OrderPolicy order = decide::OrderPolicy::kRank;
  friend bool operator==(const SyncPoint&, const SyncPoint&) = default;
};

// Methods and parts at random; servers by algorithm 1, the load balancing constraint; groups of
// neighbours in the backward pass, each with an equal part of the bytes, by algorithm 2, the
// adjacent merging constraint.
SyncPoint draw_point(const SyncSpace& space, Rng& rng);
// Another point near it: some of its choices, its order or its groups are drawn anew, or some ends
// of groups move.
SyncPoint draw_near(const SyncSpace& space, const SyncPoint& point, Rng& rng);
decide::Strategy to_strategy(const SyncSpace& space, const SyncPoint& point);

// The collectives of a point.
struct SyncGroups {
  std::vector<std::uint32_t> of;  // by variable: 1 + its collective; 0: servers have it
  std::vector<Bytes> bytes;       // by collective
  std::vector<std::uint32_t> variables;
};
SyncGroups sync_groups(const SyncSpace& space, const SyncPoint& point);

// The share of decisions that are the same in both, from 0 to 1 (§7).
double similarity(const SyncPoint& a, const SyncPoint& b);

}  // namespace heterog::search
