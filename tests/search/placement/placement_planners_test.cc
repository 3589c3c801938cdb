// Placements of real graphs: what goes into them, and what comes of them.
#include <gtest/gtest.h>

#include <set>

#include "compiler/compile.h"
#include "oracle/simulated_oracle.h"
#include "search/placement/list_placement.h"
#include "search/placement/node_orders.h"
#include "search/problems.h"
#include "search/registry.h"

namespace heterog::search {
namespace {

constexpr const char* kNames[] = {"fastt-dpos", "m-topo",   "m-etf",       "m-sct",
                                  "metis",      "dfs-topo", "order-place", "celeritas"};

PlannerResult plan(const cost::Problem& problem, const std::string& request) {
  ThreadPool pool(1);
  oracle::SimulatedOracle oracle(problem, pool);
  PlannerContext context{.oracle = oracle};
  return Registry(builtin_planners()).make(request, *problem.cluster)->plan(context);
}

// Every op and every update is in one node, edges ascend, and whoever reads a parameter is in its
// set.
TEST(PlacementGraph, HoldsTheWholeStep) {
  for (const char* model : {"bert_large24-tiny", "gnmt4-tiny", "resnet50-tiny", "ncf-tiny"}) {
    for (Backward backward : {Backward::kAnywhere, Backward::kWithForward}) {
      const auto problem = load_test_problem(model, "heterog-4gpu", 8);
      const PlacementGraph graph = make_placement_graph(*problem, backward);
      std::set<OpId> seen;
      IdVector<OpId, NodeId> node_of(problem->graph->op_count());
      for (NodeId node : graph.nodes()) {
        for (OpId op : graph.ops[node]) {
          EXPECT_TRUE(seen.insert(op).second);
          node_of[op] = node;
        }
        for (const Edge& edge : graph.inputs[node]) EXPECT_LT(edge.node, node);
      }
      std::size_t expected = problem->folded->ops.size();
      for (const graph::UpdateChain& chain : problem->folded->chains) expected += chain.ops.size();
      EXPECT_EQ(seen.size(), expected);
      for (TensorId parameter : problem->graph->parameters()) {
        std::set<SetId> sets;
        for (OpId op : problem->folded->parameter_readers[parameter]) {
          sets.insert(graph.set_of[node_of[op]]);
        }
        EXPECT_LE(sets.size(), 1u);
      }
      Bytes state = 0;
      for (Bytes bytes : graph.set_bytes) state += bytes;
      EXPECT_GE(state, problem->graph->parameter_elements() * 4);
    }
  }
}

// Every op runs once, on the device that the algorithm gave it; nothing is replicated.
TEST(PlacementPlanners, EveryOperatorRunsOnOneDevice) {
  const auto problem = load_test_problem("transformer6-tiny", "heterog-4gpu", 8);
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const PlannerResult result = plan(*problem, name);
    const compiler::Plan made = compiler::compile(*problem, result.strategy);
    std::map<OpId, int> runs;
    for (TaskId task : made.task_ids()) {
      EXPECT_NE(made.kind[task], compiler::TaskKind::kAllReduce);
      EXPECT_NE(made.kind[task], compiler::TaskKind::kPush);
      if (made.kind[task] == compiler::TaskKind::kCompute) ++runs[made.op[task]];
    }
    for (const auto& [op, times] : runs) EXPECT_EQ(times, 1);
  }
}

// The best order is at least as good as each.
TEST(PlacementPlanners, TheBestOrderIsTheBest) {
  const auto problem = load_test_problem("gnmt4-tiny", "heterog-4gpu", 16);
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const oracle::Evaluation best = plan(*problem, name).evaluation;
    for (const char* order : {"own", "rank", "rank-queued", "fifo"}) {
      const auto one = plan(*problem, std::string(name) + ":order=" + order).evaluation;
      EXPECT_FALSE(oracle::better(one, best)) << order;
    }
  }
}

// On one device there is one placement, and all planners find the step of that device.
TEST(PlacementPlanners, OneDeviceIsOneDevice) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-1gpu", 8);
  const Nanoseconds step = plan(*problem, "single").evaluation.step;
  for (const char* name : kNames) EXPECT_EQ(plan(*problem, name).evaluation.step, step) << name;
}

// Where the first placement is short of memory, as much less is given.
TEST(PlacementPlanners, MemoryIsCorrectedByWhatWasMeasured) {
  const auto problem = load_test_problem("transformer12", "celeritas-4gpu", 256);
  const std::string anywhere = "celeritas:backward=anywhere,order=rank,corrections=";
  const PlannerResult first = plan(*problem, anywhere + "0");
  ASSERT_FALSE(first.evaluation.feasible);
  EXPECT_EQ(first.evaluations, 1);
  const PlannerResult more = plan(*problem, anywhere + "3");
  EXPECT_GT(more.evaluations, 1);
  EXPECT_LE(more.evaluation.missing_bytes, first.evaluation.missing_bytes);
}

TEST(PlacementPlanners, RefuseWrongOptions) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  const Registry registry(builtin_planners());
  for (const char* wrong : {"m-etf:links=fre", "celeritas:range=0", "celeritas:memory=2",
                            "fastt-dpos:critical-device=maybe", "m-topo:order=late",
                            "m-sct:threshold=2", "metis:seed=x", "fastt:rounds=0"}) {
    EXPECT_THROW(registry.make(wrong, *problem->cluster), Error) << wrong;
  }
}

}  // namespace
}  // namespace heterog::search
