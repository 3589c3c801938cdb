// Parts of the batch, what is learned of costs, and splits along the critical path.
#include "search/placement/fastt.h"

#include <gtest/gtest.h>

#include <limits>

#include "cost/collective.h"
#include "oracle/simulated_oracle.h"
#include "search/placement/list_placement.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

PlannerResult plan_by(const cost::Problem& problem, const std::string& request) {
  ThreadPool pool(1);
  oracle::SimulatedOracle oracle(problem, pool);
  PlannerContext context{.oracle = oracle};
  return Registry(builtin_planners()).make(request, *problem.cluster)->plan(context);
}

TEST(Parts, OnePartEachIsTheGraph) {
  const auto problem = load_test_problem("gnmt4-tiny", "heterog-4gpu", 8);
  const PlacementGraph whole = make_placement_graph(*problem, Backward::kWithForward);
  const PartedGraph parts = in_parts(whole, Parts(whole.set_bytes.size(), 1));
  ASSERT_EQ(parts.graph.size(), whole.size());
  EXPECT_EQ(parts.graph.durations, whole.durations);
  for (NodeId node : whole.nodes()) {
    EXPECT_EQ(parts.graph.kept[node], whole.kept[node]);
    ASSERT_EQ(parts.graph.inputs[node].size(), whole.inputs[node].size());
    for (std::size_t i = 0; i < whole.inputs[node].size(); ++i) {
      EXPECT_EQ(parts.graph.inputs[node][i].node, whole.inputs[node][i].node);
      EXPECT_EQ(parts.graph.inputs[node][i].bytes, whole.inputs[node][i].bytes);
    }
  }
}

// 8 samples: in 2 and in 4 parts. Whoever reads gets all of it, and a parameter is sent to every
// part but the first.
TEST(Parts, OverlapsAreSent) {
  const auto problem = load_test_problem("transformer6-tiny", "heterog-4gpu", 8);
  const PlacementGraph whole = make_placement_graph(*problem, Backward::kWithForward);
  const auto may = sets_that_split(whole);
  Parts parts(whole.set_bytes.size(), 1);
  for (SetId set : id_range<SetId>(parts.size())) {
    if (may[set]) parts[set] = set.value() % 2 == 0 ? 2 : 4;
  }
  const PartedGraph made = in_parts(whole, parts);
  std::int64_t sources = 0, unequal = 0;
  for (NodeId node : made.graph.nodes()) {
    EXPECT_LE(made.graph.set_of[node].value(), made.graph.set_bytes.size());
    for (const Edge& edge : made.graph.inputs[node]) EXPECT_LT(edge.node, node);
    if (made.part_of[node].whole.valid()) continue;
    ++sources;
    const std::size_t readers = made.graph.outputs[node].size();
    EXPECT_TRUE(readers == 1 || readers == 3) << readers;
  }
  EXPECT_GT(sources, 10);
  for (NodeId node : whole.nodes()) {
    for (std::size_t i = 0; i < whole.inputs[node].size(); ++i) {
      const Edge& edge = whole.inputs[node][i];
      const std::int64_t from = parts[whole.set_of[edge.node]], to = parts[whole.set_of[node]];
      const bool update =
          problem->graph->op(whole.ops[node].back()).phase == graph::Phase::kUpdate ||
          problem->graph->op(whole.ops[edge.node].back()).phase == graph::Phase::kUpdate;
      if (from == to || update || edge.bytes % 8 != 0) continue;
      ++unequal;
      Bytes sent = 0;
      for (NodeId part : made.graph.nodes()) {
        if (made.part_of[part].whole != node) continue;
        for (const Edge& one : made.graph.inputs[part]) {
          if (made.part_of[one.node].whole == edge.node) sent += one.bytes;
        }
      }
      Bytes expected = 0;  // a node may read several values of another
      for (const Edge& other : whole.inputs[node]) {
        if (other.node == edge.node) expected += other.bytes;
      }
      EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(expected), 16);
    }
  }
  EXPECT_GT(unequal, 10);
}

// y = 500 + 2x through 100, 200 and 400 bytes.
TEST(TransferLines, AreThoseOfLeastSquares) {
  TransferLines lines(2);
  EXPECT_EQ(lines.line(DeviceId(0), DeviceId(1)).at(1'000'000), 0);
  lines.observe(DeviceId(0), DeviceId(1), 100, 700);
  EXPECT_EQ(lines.line(DeviceId(0), DeviceId(1)).at(200), 1400);
  lines.observe(DeviceId(0), DeviceId(1), 200, 900);
  lines.observe(DeviceId(0), DeviceId(1), 400, 1300);
  EXPECT_EQ(lines.line(DeviceId(0), DeviceId(1)).at(1000), 2500);
  EXPECT_EQ(lines.line(DeviceId(1), DeviceId(0)).at(1000), 0);
  EXPECT_EQ(lines.kinds().size(), 2u);
  // Residuals of ±30 around it cancel out: (100, 730), (200, 840), (300, 1130) by hand: slope
  // Σ(x − 200)(y − 900) / Σ(x − 200)² = (17,000 + 23,000) / 20,000.
  TransferLines noisy(2);
  noisy.observe(DeviceId(1), DeviceId(0), 100, 730);
  noisy.observe(DeviceId(1), DeviceId(0), 200, 840);
  noisy.observe(DeviceId(1), DeviceId(0), 300, 1130);
  EXPECT_EQ(noisy.line(DeviceId(1), DeviceId(0)).at(0), 500);
  EXPECT_EQ(noisy.line(DeviceId(1), DeviceId(0)).at(100), 700);
}

// Nothing is known at first; what ran on every device is known of every device.
TEST(CostBook, KnowsWhatHasRun) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-4gpu", 8);
  const PlacementGraph whole = make_placement_graph(*problem, Backward::kWithForward);
  const auto may = sets_that_split(whole);
  Parts parts(whole.set_bytes.size(), 1);
  for (SetId set : id_range<SetId>(parts.size())) parts[set] = may[set] ? 4 : 1;
  CostBook costs(whole);
  PartedGraph made = in_parts(whole, parts);
  const std::vector<Nanoseconds> real = made.graph.durations;
  costs.apply(made);
  for (Nanoseconds one : made.graph.durations) EXPECT_EQ(one, 0);
  Placement placement;
  for (const auto& part : made.part_of) placement.push_back(DeviceId(part.number));
  EXPECT_TRUE(costs.observe(made, placement));
  EXPECT_FALSE(costs.observe(made, placement));
  made = in_parts(whole, parts);
  costs.apply(made);
  for (NodeId node : made.graph.nodes()) {
    const NodeId of = made.part_of[node].whole;
    if (!of.valid() || made.first[of].value() + 1 == made.graph.size()) continue;
    const bool split = made.part_of[NodeId(made.first[of].value() + 1)].whole == of;
    for (std::size_t type = 0; type < problem->cluster->type_count() && split; ++type) {
      const std::size_t at = node.value() * problem->cluster->type_count() + type;
      EXPECT_EQ(made.graph.durations[at], real[at]);
    }
  }
}

// Splitting never ends later than not splitting, and pays where one device does all.
TEST(SplitPlacement, LowersTheBelievedEnd) {
  const auto problem = load_test_problem("vgg19", "fastt-4gpu", 64);
  const PlacementGraph whole = make_placement_graph(*problem, Backward::kWithForward);
  CostBook costs(whole);
  const Parts one(whole.set_bytes.size(), 1);
  const PartedGraph graph = in_parts(whole, one);
  // All is known of the type; of transfers, those between the first two devices and the others.
  for (std::size_t from = 0; from < 4; ++from) {
    Placement placement;
    for (NodeId node : graph.graph.nodes()) {
      placement.push_back(DeviceId((node.value() % 3 == 0 ? from : node.value()) % 4));
    }
    costs.observe(graph, placement);
  }
  const std::vector<Bytes> capacity(4, Bytes{1} << 40);
  const auto none = IdVector<SetId, std::uint8_t>(one.size(), 0);
  const SplitPlacement whole_nodes = split_placement(whole, one, none, capacity, costs, {});
  EXPECT_EQ(whole_nodes.splits, 0);
  EXPECT_EQ(whole_nodes.parts, one);
  const SplitPlacement split =
      split_placement(whole, one, sets_that_split(whole), capacity, costs, {});
  EXPECT_GT(split.splits, 0);
  EXPECT_LT(split.finish, whole_nodes.finish);
  EXPECT_EQ(
      split_placement(whole, one, sets_that_split(whole), capacity, costs, {.operators = 1}).splits,
      1);
}

// It begins with plain data parallelism, and rolls back what is slower.
TEST(Fastt, IsNeverWorseThanWhereItBegan) {
  for (const auto& [model, cluster, batch] : {std::tuple{"vgg19", "fastt-4gpu", 64},
                                              {"lstm_lm", "fastt-2gpu", 64},
                                              {"transformer6-tiny", "heterog-4gpu", 17},
                                              {"lenet5", "fastt-1gpu", 64}}) {
    SCOPED_TRACE(model);
    const auto problem = load_test_problem(model, cluster, batch);
    const PlannerResult found = plan_by(*problem, "fastt");
    for (const char* begin : {"ev-ar", "ev-ps"}) {
      EXPECT_FALSE(better(plan_by(*problem, begin).evaluation, found.evaluation)) << begin;
    }
    EXPECT_GT(found.evaluations, 6);
  }
}

}  // namespace
}  // namespace heterog::search
