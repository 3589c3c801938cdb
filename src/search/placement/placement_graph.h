// A step as placement algorithms see it: nodes that run on one device each, and what they send.
#pragma once

#include <cstdint>
#include <vector>

#include "base/csr.h"
#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::search {

using NodeId = Id<struct NodeTag>;
using SetId = Id<struct SetTag>;
using ValueId = Id<struct ValueTag>;

// What a node sends to another one, or gets from it.
struct Edge {
  NodeId node;    // the other end
  ValueId value;  // goes to a device once, however many nodes read it there
  Bytes bytes = 0;
};

class TransferLines;

// One training step on the whole batch, without replicas. Nodes are the ops that become tasks, in a
// topological order (that of their numbers), and the update of each parameter. Nodes of one set
// have to be on one device: readers of a parameter, its update, and ops that read what their
// producer alone has.
struct PlacementGraph {
  const cost::Problem* problem = nullptr;
  IdVector<NodeId, std::vector<OpId>> ops;  // of each node; the last names it
  Csr<NodeId, Edge> inputs, outputs;        // each pair of nodes once a value
  IdVector<NodeId, SetId> set_of;
  IdVector<SetId, Bytes> set_bytes;        // parameters, their optimizer state and gradients
  IdVector<SetId, Bytes> parameter_bytes;  // of these the parameters alone
  IdVector<NodeId, Bytes> kept;            // what its forward pass keeps for the backward pass
  Bytes passing = 0;                       // the most that one node reads and writes
  std::size_t value_count = 0;

  std::size_t size() const { return ops.size(); }
  IdRange<NodeId> nodes() const { return id_range<NodeId>(size()); }
  Nanoseconds duration(NodeId node, DeviceTypeId type) const {
    return durations[node.value() * problem->cluster->type_count() + type.value()];
  }
  std::vector<Nanoseconds> durations;  // [node][device type], on the whole batch
  const TransferLines* transfers =
      nullptr;  // what transfers are believed to take; null: as they do
};

// Where the ops of the backward pass may be.
enum class Backward : std::uint8_t {
  kAnywhere,
  kWithForward,  // in the set of the forward op that each differentiates
};

// Whether it is the update of a parameter.
bool is_update(const PlacementGraph& graph, NodeId node);

PlacementGraph make_placement_graph(const cost::Problem& problem, Backward backward);

// Neighbours in `order` (every node once, topological) joined: one node for each number in
// `cluster_of_position`, which ascend from 0. A set's bytes are those of its first node's; nodes of
// one set may be in several clusters, so the sets of the result are apart.
PlacementGraph coarsened(const PlacementGraph& graph, const std::vector<NodeId>& order,
                         const std::vector<std::uint32_t>& cluster_of_position);

// Where each node runs.
using Placement = IdVector<NodeId, DeviceId>;

// The strategy that says so: a unit for each device. With `started`, nodes in the order in which
// they start, priorities that keep to it; else by rank.
decide::Strategy placed(const PlacementGraph& graph, const Placement& placement,
                        const std::vector<NodeId>& started);

}  // namespace heterog::search
