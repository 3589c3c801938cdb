// What placements of single operators add to `plan`: where they win, what they cost, and that
// nothing is lost by them.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/rng.h"
#include "oracle/simulated_oracle.h"
#include "search/placement/node_orders.h"
#include "search/portfolio/portfolio.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

PlannerResult plan(const cost::Problem& problem, Part without, Budget budget) {
  ThreadPool pool(2);
  oracle::SimulatedOracle oracle(problem, pool);
  PlannerContext context{.oracle = oracle, .rng = Rng(1), .budget = std::move(budget)};
  return best_plan(context, {.without = without});
}

bool is_placement(const PlannerResult& result) {
  return result.found_by.starts_with("fastt-dpos") || result.found_by.starts_with("m-etf");
}

// Ops of one group on different devices.
std::size_t parted_groups(const cost::Problem& problem, const decide::Strategy& strategy) {
  std::size_t parted = 0;
  for (GroupId group : id_range<GroupId>(problem.grouping.count())) {
    std::set<UnitId> units;
    for (OpId op : problem.grouping.members[group]) {
      if (strategy.unit_of_op.empty()) break;
      units.insert(strategy.unit_of_op[op]);
    }
    parted += units.size() > 1;
  }
  return parted;
}

// Cells of different layers run side by side; every op stays on its one device to the end.
TEST(PlacementStage, RecurrentStepsAreFasterOperatorByOperator) {
  const auto problem = load_test_problem("lstm_lm", "fastt-2gpu", 16);
  const PlannerResult with = plan(*problem, Part::kNothing, {.evaluations = 160});
  const PlannerResult without = plan(*problem, Part::kPlacements, {.evaluations = 160});
  EXPECT_FALSE(is_placement(without)) << without.found_by;
  ASSERT_TRUE(is_placement(with)) << with.found_by;
  EXPECT_LT(to_seconds(with.evaluation.step), 0.9 * to_seconds(without.evaluation.step));
  EXPECT_GT(parted_groups(*problem, with.strategy), 0u);
  for (const decide::UnitDecision& unit : with.strategy.units) {
    EXPECT_EQ(unit.replicas.size(), 1u);
  }
  EXPECT_LE(with.evaluations, 160);
}

// In one shot what there is without them is found as before. On top of it come six plans at the
// most, and none where they are believed to be far behind.
TEST(PlacementStage, TakesNothingFromTheOthers) {
  const struct {
    const char* model;
    const char* cluster;
    std::int64_t batch, most;
  } cases[] = {{"gnmt4-tiny", "fastt-4gpu", 17, 6},
               {"ncf", "workstation-3090-4090", 128, 0},
               {"lenet5", "fastt-2gpu", 4096, 0}};
  for (const auto& [model, cluster, batch, most] : cases) {
    SCOPED_TRACE(model);
    const auto problem = load_test_problem(model, cluster, batch);
    const PlannerResult with = plan(*problem, Part::kNothing, {});
    const PlannerResult without = plan(*problem, Part::kPlacements, {});
    EXPECT_FALSE(better(without.evaluation, with.evaluation));
    EXPECT_LE(with.evaluations, without.evaluations + most);
    if (is_placement(with)) continue;
    EXPECT_EQ(with.strategy, without.strategy);
    EXPECT_EQ(with.evaluation.step, without.evaluation.step);
  }
}

// A budget of time is used up by what goes on for as long as there is some.
TEST(PlacementStage, HasItsTurnWithinABudgetOfTime) {
  const auto problem = load_test_problem("gnmt4-tiny", "fastt-4gpu", 17);
  int asked = 0;
  const PlannerResult found =
      plan(*problem, Part::kNothing, {.time_used = [&] { return ++asked / 100.0; }});
  EXPECT_TRUE(is_placement(found)) << found.found_by;
}

// One device has no other placement, so that what its nodes take together is the least.
TEST(PlacementStage, NoPlacementIsBelowTheLeastStep) {
  const auto alone = load_test_problem("gnmt4-tiny", "fastt-1gpu", 16);
  const PlacementGraph chain = make_placement_graph(*alone, Backward::kAnywhere);
  Nanoseconds sum = 0;
  for (NodeId node : chain.nodes()) {
    if (!is_update(chain, node)) sum += chain.duration(node, DeviceTypeId(0));
  }
  EXPECT_EQ(least_step(chain), sum);
  // Where operators form one long path, more devices are no help.
  const auto path = load_test_problem("vgg19-tiny", "fastt-8gpu", 16);
  const PlacementGraph graph_of_path = make_placement_graph(*path, Backward::kAnywhere);
  Nanoseconds forward = 0;
  for (NodeId node : graph_of_path.nodes()) {
    const graph::Op& op = path->graph->op(graph_of_path.ops[node].back());
    if (op.phase == graph::Phase::kForward)
      forward += graph_of_path.duration(node, DeviceTypeId(0));
  }
  EXPECT_GE(least_step(graph_of_path), forward);

  Rng rng(7);
  for (const char* model : {"gnmt4-tiny", "nasnet_a_large-tiny", "lstm_lm-tiny", "vgg19-tiny"}) {
    SCOPED_TRACE(model);
    const auto problem = load_test_problem(model, "heterog-4gpu", 16);
    ThreadPool pool(1);
    oracle::SimulatedOracle oracle(*problem, pool);
    const PlacementGraph graph = make_placement_graph(*problem, Backward::kAnywhere);
    std::vector<decide::Strategy> strategies;
    for (int i = 0; i < 20; ++i) {
      IdVector<SetId, DeviceId> device(graph.set_bytes.size());
      // Few devices at first, so that hardly anything is sent.
      for (DeviceId& one : device) {
        one = DeviceId(static_cast<std::size_t>(rng.below(static_cast<std::uint64_t>(1 + i / 5))));
      }
      Placement placement(graph.size());
      for (NodeId node : graph.nodes()) placement[node] = device[graph.set_of[node]];
      strategies.push_back(placed(graph, placement, {}));
    }
    for (const Measured& measured : oracle.measure(strategies)) {
      EXPECT_GE(measured.evaluation.step, least_step(graph));
    }
  }
}

}  // namespace
}  // namespace heterog::search
