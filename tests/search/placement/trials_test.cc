// Planners that measure, where costs are not what they believe.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cost/hidden.h"
#include "oracle/simulated_oracle.h"
#include "search/placement/celeritas.h"
#include "search/placement/list_placement.h"
#include "search/placement/node_orders.h"
#include "search/problems.h"
#include "search/registry.h"
#include "sim/simulator.h"

namespace heterog::search {
namespace {

// Of a planner: its plan's step under hidden costs, with trials or without.
struct UnderHidden {
  PlannerResult result;
  Nanoseconds step = 0;
};
UnderHidden planned_under(const cost::Problem& believed, const cost::Problem& hidden,
                          const std::string& request, bool trials) {
  ThreadPool pool(1);
  oracle::SimulatedOracle thinks(believed, pool), is(hidden, pool);
  PlannerContext context{.oracle = thinks};
  if (trials) context.trials = &is;
  UnderHidden tried;
  tried.result = Registry(builtin_planners()).make(request, *believed.cluster)->plan(context);
  tried.step = is.measure({&tried.result.strategy, 1}).front().evaluation.step;
  return tried;
}

TEST(Trials, FasttLearnsByThem) {
  const auto believed = load_test_problem("gnmt4-tiny", "fastt-2gpu", 32);
  std::int64_t differ = 0;
  Nanoseconds with = 0, without = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto hidden = cost::hidden_problem(*believed, {.seed = seed, .spread = 1});
    const UnderHidden learned = planned_under(*believed, *hidden, "fastt", true);
    EXPECT_EQ(learned.result.evaluation.step, learned.step);
    // As if there were nothing but the hidden costs: it uses no belief.
    const UnderHidden knows = planned_under(*hidden, *hidden, "fastt", false);
    EXPECT_EQ(learned.step, knows.step);
    const UnderHidden believes = planned_under(*believed, *hidden, "fastt", false);
    differ += believes.step != learned.step;
    with += learned.step;
    without += believes.step;
  }
  EXPECT_GT(differ, 0);
  EXPECT_LE(with, without);
}

// A planner that only thinks does the same with trials and without.
TEST(Trials, OthersDoNotLook) {
  const auto believed = load_test_problem("vgg19-tiny", "heterog-4gpu", 32);
  const auto hidden = cost::hidden_problem(*believed, {.seed = 1, .spread = 1});
  for (const char* name : {"m-etf", "fastt-dpos", "ev-ar", "local-search"}) {
    const UnderHidden one = planned_under(*believed, *hidden, name, true),
                      other = planned_under(*believed, *hidden, name, false);
    EXPECT_EQ(one.result.evaluation.step, other.result.evaluation.step) << name;
    EXPECT_EQ(one.step, other.step) << name;
  }
}

// What ran in the first placement is known on the type that it ran on, and nothing else.
TEST(Trials, CeleritasMeasuresOneSequentialPlacement) {
  const auto believed = load_test_problem("resnet50-tiny", "heterog-8gpu", 32);
  const auto hidden = cost::hidden_problem(*believed, {.seed = 2, .spread = 0.5});
  const PlacementGraph before = make_placement_graph(*believed, Backward::kWithForward);
  const PlacementGraph real = make_placement_graph(*hidden, Backward::kWithForward);
  PlacementGraph graph = before;
  // So little a device that all of them are needed.
  Bytes all = 0, largest = 0;
  for (NodeId node : graph.nodes()) {
    const Bytes bytes = graph.kept[node] + graph.set_bytes[graph.set_of[node]];
    all += graph.kept[node];
    largest = std::max(largest, bytes);
  }
  for (Bytes bytes : graph.set_bytes) all += bytes;
  const std::vector<Bytes> capacity(8, all / 8 + largest);
  ThreadPool pool(1);
  oracle::SimulatedOracle trials(*hidden, pool);
  measure_times(graph, capacity, trials);
  const Placement placement = filled(before, capacity, depth_first(before)).placement();
  std::array<std::int64_t, 2> counted{};
  for (NodeId node : graph.nodes()) {
    const DeviceTypeId here = believed->cluster->device(placement[node]).type;
    for (DeviceTypeId type : id_range<DeviceTypeId>(believed->cluster->type_count())) {
      const PlacementGraph& expected = type == here ? real : before;
      EXPECT_EQ(graph.duration(node, type), expected.duration(node, type));
    }
    ++counted[here.value() == 0];
  }
  EXPECT_GT(counted[0], 0);
  EXPECT_GT(counted[1], 0);

  for (const char* name : {"celeritas", "order-place"}) {
    const UnderHidden one = planned_under(*believed, *hidden, name, true),
                      other = planned_under(*believed, *hidden, name, false);
    EXPECT_EQ(one.result.evaluations, other.result.evaluations + 1) << name;
  }
}

}  // namespace
}  // namespace heterog::search
