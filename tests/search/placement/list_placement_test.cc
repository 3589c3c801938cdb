// What is believed of placements: by hand, by rules that every schedule keeps, and by FastT's
// bound.
#include "search/placement/list_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "cost/collective.h"
#include "search/placement/node_orders.h"
#include "search/placement/random_graphs.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

using testing::ElementsAre;

constexpr Bytes kPlenty = Bytes{1} << 40;

std::vector<Bytes> plenty(const PlacementGraph& graph) {
  return std::vector<Bytes>(graph.problem->cluster->device_count(), kPlenty);
}

// 0 → 1 → 3 and 0 → 2 → 3, of 10, 30, 20 and 5 µs, and edges of one byte.
PlacementGraph diamond(const cost::Problem& problem) {
  PlacementGraph graph;
  graph.problem = &problem;
  std::vector<std::pair<NodeId, Edge>> inputs, outputs;
  for (const Nanoseconds time : {10'000, 30'000, 20'000, 5'000}) {
    graph.ops.push_back({OpId(graph.size())});
    graph.kept.push_back(1);
    graph.set_of.push_back(graph.set_bytes.push_back(0));
    graph.durations.push_back(time);
  }
  for (const auto& [from, to] : {std::pair{0, 1}, {0, 2}, {1, 3}, {2, 3}}) {
    const ValueId value(from == 0 ? 0 : graph.value_count == 0 ? 1 : from);
    inputs.emplace_back(NodeId(to), Edge{NodeId(from), value, 1});
    outputs.emplace_back(NodeId(from), Edge{NodeId(to), value, 1});
  }
  graph.value_count = 3;
  graph.inputs = Csr<NodeId, Edge>::from_pairs(4, inputs);
  graph.outputs = Csr<NodeId, Edge>::from_pairs(4, outputs);
  return graph;
}

// A transfer of one byte takes c, between 20 and 30 µs. The longer branch stays with the first
// node. The shorter one goes to the other device, where it ends at 10 + c + 20, before 10 + 30
// + 20. So does the last node, which could start at 30 + 2c on the first device and starts at 40 +
// c here.
TEST(Dpos, BelievesWhatAHandBelieves) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  const PlacementGraph graph = diamond(*problem);
  const cluster::Cluster& cluster = *problem->cluster;
  const Nanoseconds c =
      cost::transfer_duration(cluster, cluster.route(DeviceId(0), DeviceId(1)), 1);
  ASSERT_TRUE(c > 20'000 && c < 30'000) << c;
  const auto rank = bottom_levels(graph, weights(graph, Of::kMost));
  EXPECT_EQ(rank[NodeId(3)], 5'000);
  EXPECT_EQ(rank[NodeId(2)], 20'000 + c + 5'000);
  EXPECT_EQ(rank[NodeId(0)], 10'000 + c + 30'000 + c + 5'000);
  const auto before = top_levels(graph, weights(graph, Of::kMost));
  EXPECT_EQ(before[NodeId(3)], 10'000 + c + 30'000 + c);

  const Estimate estimate = dpos(graph, plenty(graph), {.critical_device = false});
  const Placement& at = estimate.placement();
  EXPECT_EQ(at[NodeId(0)], DeviceId(0));
  EXPECT_EQ(at[NodeId(1)], DeviceId(0));
  EXPECT_EQ(at[NodeId(2)], DeviceId(1));
  EXPECT_EQ(at[NodeId(3)], DeviceId(1));
  EXPECT_EQ(estimate.finish(), 40'000 + c + 5'000);
  EXPECT_THAT(estimate.started(), ElementsAre(NodeId(0), NodeId(1), NodeId(2), NodeId(3)));
  // The critical path is 0, 1, 3: it has a device of its own.
  const Estimate critical = dpos(graph, plenty(graph), {});
  EXPECT_EQ(critical.placement()[NodeId(3)], critical.placement()[NodeId(0)]);
  EXPECT_EQ(critical.finish(), 30'000 + 2 * c + 5'000);
}

// A device that has no room for the critical path hands the rest of it on.
TEST(Dpos, TheCriticalPathGoesToTheNextDeviceWhereMemoryEnds) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  const PlacementGraph graph = diamond(*problem);
  const Placement at = dpos(graph, {2, 2}, {}).placement();
  EXPECT_EQ(at[NodeId(0)], at[NodeId(1)]);
  EXPECT_NE(at[NodeId(3)], at[NodeId(0)]);
  EXPECT_NE(at[NodeId(2)], at[NodeId(0)]);
}

TEST(NodeOrders, AreThoseOfThePapers) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  const PlacementGraph graph = diamond(*problem);
  const auto ids = [](const std::vector<NodeId>& order) {
    std::vector<std::uint32_t> numbers;
    for (NodeId node : order) numbers.push_back(node.value());
    return numbers;
  };
  EXPECT_THAT(ids(breadth_first(graph)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids(depth_first(graph)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids(critical_first(graph, weights(graph, Of::kMean))), ElementsAre(0, 1, 2, 3));
  // What is 30 µs long becomes 1 µs: the other branch is on the critical path then.
  PlacementGraph other = graph;
  other.durations[1] = 1'000;
  EXPECT_THAT(ids(critical_first(other, weights(other, Of::kMean))), ElementsAre(0, 2, 1, 3));
}

// Beside a list of every nanosecond.
TEST(BusyTimes, FindTheFirstGap) {
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    BusyTimes busy;
    std::vector<bool> taken(200, false);
    for (int i = 0; i < 25; ++i) {
      const auto ready = static_cast<Nanoseconds>(rng.below(60));
      const auto duration = static_cast<Nanoseconds>(rng.below(6));
      Nanoseconds slow = ready;
      const auto is_free = [&](Nanoseconds at) {
        for (Nanoseconds t = at; t < at + duration; ++t) {
          if (taken[static_cast<std::size_t>(t)]) return false;
        }
        return true;
      };
      while (!is_free(slow)) ++slow;
      const Nanoseconds at = busy.first_gap(ready, duration);
      if (duration > 0) {
        ASSERT_EQ(at, slow);
      }
      busy.take({at, at + duration});
      for (Nanoseconds t = at; t < at + duration; ++t) taken[static_cast<std::size_t>(t)] = true;
    }
  }
}

// Rules that hold for whatever is believed: a node starts when its inputs are there, devices do one
// thing at a time, sets stay together, memory is kept to where everything fits.
void expect_a_schedule(const PlacementGraph& graph, const Estimate& estimate) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  std::vector<std::vector<Interval>> of_device(cluster.device_count());
  IdVector<SetId, DeviceId> of_set(graph.set_bytes.size());
  for (NodeId node : graph.nodes()) {
    const DeviceId device = estimate.placement()[node];
    ASSERT_TRUE(device.valid());
    DeviceId& set = of_set[graph.set_of[node]];
    if (!set.valid()) set = device;
    ASSERT_EQ(set, device);
    const Interval own = estimate.interval(node);
    ASSERT_EQ(own.end - own.begin, graph.duration(node, cluster.device(device).type));
    if (own.end > own.begin) of_device[device.value()].push_back(own);
    for (const Edge& edge : graph.inputs[node]) {
      const DeviceId from = estimate.placement()[edge.node];
      const Nanoseconds moves =
          from == device
              ? 0
              : cost::transfer_duration(cluster, cluster.route(from, device), edge.bytes);
      ASSERT_GE(own.begin, estimate.interval(edge.node).end + moves);
    }
  }
  for (auto& intervals : of_device) {
    std::ranges::sort(intervals, {}, &Interval::begin);
    for (std::size_t i = 1; i < intervals.size(); ++i) {
      ASSERT_LE(intervals[i - 1].end, intervals[i].begin);
    }
  }
}

TEST(ListPlacement, WhatIsBelievedIsASchedule) {
  const auto problem = load_test_problem("lenet5-tiny", "heterog-4gpu", 8);
  Rng rng(5);
  for (int round = 0; round < 2000; ++round) {
    const PlacementGraph graph =
        random_placement_graph(*problem, {.nodes = 1 + rng.below(20), .sets = true}, rng);
    std::vector<Bytes> capacity;
    for (std::size_t i = 0; i < 4; ++i) capacity.push_back(static_cast<Bytes>(rng.below(1200)));
    const LinkUse links = rng.below(2) ? LinkUse::kFree : LinkUse::kQueued;
    expect_a_schedule(graph, dpos(graph, capacity, {.links = links}));
    expect_a_schedule(graph, dpos(graph, capacity, {.links = links, .critical_device = false}));
    expect_a_schedule(graph, earliest_start_first(graph, capacity, links));
    expect_a_schedule(graph, filled(graph, capacity, depth_first(graph)));
  }
}

// Where room is enough, no device takes more than it has.
TEST(ListPlacement, KeepsToMemory) {
  const auto problem = load_test_problem("lenet5-tiny", "heterog-4gpu", 8);
  Rng rng(6);
  for (int round = 0; round < 500; ++round) {
    const PlacementGraph graph = random_placement_graph(*problem, {.nodes = 12}, rng);
    Bytes all = 0;
    for (NodeId node : graph.nodes()) all += graph.kept[node] + graph.set_bytes[graph.set_of[node]];
    const std::vector<Bytes> capacity(4, all / 2 + 200);
    for (const Estimate& estimate :
         {dpos(graph, capacity, {}), earliest_start_first(graph, capacity, LinkUse::kFree),
          filled(graph, capacity, breadth_first(graph))}) {
      for (DeviceId device : problem->cluster->device_ids()) ASSERT_GE(estimate.left(device), 0);
    }
  }
}

// FastT's theorem 1: at most twice the shortest step without transfers, plus the longest chain of
// transfers. The shortest is at least a device's part of all work and the longest chain, which is
// what the proof uses. On equal devices with enough memory.
TEST(Dpos, IsWithinTheBoundOfTheorem1) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-4gpu", 8);
  Rng rng(7);
  for (int round = 0; round < 100'000; ++round) {
    const PlacementGraph graph =
        random_placement_graph(*problem, {.nodes = 1 + rng.below(12), .longest = 200'000}, rng);
    const Weights weighed = weights(graph, Of::kMost);
    Nanoseconds work = 0;
    IdVector<NodeId, Nanoseconds> chain(graph.size(), 0), moves(graph.size(), 0);
    Nanoseconds longest = 0, most = 0;
    for (NodeId node : graph.nodes()) {
      work += weighed.node[node];
      chain[node] += weighed.node[node];
      longest = std::max(longest, chain[node]);
      most = std::max(most, moves[node]);
      const auto edges = graph.outputs[node];
      for (std::size_t e = 0; e < edges.size(); ++e) {
        const NodeId next = edges[e].node;
        chain[next] = std::max(chain[next], chain[node]);
        moves[next] = std::max(moves[next], moves[node] + weighed.output[node][e]);
      }
    }
    const Nanoseconds optimum = std::max(longest, (work + 3) / 4);
    for (bool critical_device : {false, true}) {
      const Estimate estimate = dpos(graph, plenty(graph), {.critical_device = critical_device});
      ASSERT_LE(estimate.finish(), 2 * optimum + most) << round;
    }
  }
}

}  // namespace
}  // namespace heterog::search
