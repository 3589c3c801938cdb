// Layouts in which a device stands several times: what each instance makes, how it is added up, and
// what still exists once per device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "compiler/check/check_bytes.h"
#include "compiler/compile.h"
#include "compiler/device_id.h"
#include "decide/check_strategy.h"
#include "decide/micro_batches.h"
#include "decide/problems.h"
#include "decide/random_instances.h"
#include "graph/folded.h"
#include "sim/check_timeline.h"
#include "sim/known_problems.h"
#include "sim/reference_simulator.h"

namespace heterog::compiler {
namespace {

using sim::Backward;
using sim::backward_graph;
using sim::Known;
using sim::known_cluster;
using sim::NamedOps;

// So many instances of every op on devices 0, 1, …, a micro-batch each, one sample or more.
decide::Strategy each(const cost::Problem& problem, const std::vector<double>& instances,
                      decide::SyncMethod sync) {
  decide::UnitDecision decision{.replicas = {}, .sync = sync, .in_turn = true};
  decide::Strategy strategy;
  strategy.micro_batches = 0;
  for (std::size_t i = 0; i < instances.size(); ++i) {
    decision.replicas.push_back({d(i), instances[i]});
    strategy.micro_batches += static_cast<std::int64_t>(instances[i]);
  }
  strategy.units.assign(problem.grouping.count(), decision);
  return strategy;
}

std::size_t count(const Plan& plan, TaskKind kind) {
  return static_cast<std::size_t>(std::count(plan.kind.begin(), plan.kind.end(), kind));
}

std::size_t instances(const Plan& plan, OpId op) {
  std::size_t found = 0;
  for (TaskId task : plan.task_ids()) {
    found += plan.kind[task] == TaskKind::kCompute && plan.op[task] == op;
  }
  return found;
}

TEST(Instances, OfOneDeviceHaveSlicesOfTheirOwn) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 2, 9);
  const decide::Strategy strategy = each(*problem, {2, 1}, decide::SyncMethod::kAllReduce);
  const std::vector<decide::Slice> slices =
      decide::slices_of(strategy, strategy.units[UnitId(0)], 9);
  EXPECT_THAT(slices, testing::ElementsAre(decide::Slice{d(0), 0, 3}, decide::Slice{d(0), 3, 6},
                                           decide::Slice{d(1), 6, 9}));
  EXPECT_THAT(decide::merge_by_device(slices),
              testing::ElementsAre(decide::Slice{d(0), 0, 6}, decide::Slice{d(1), 6, 9}));
}

// w has 400 B. Three instances on device 0 and two on device 1: 3 − 1 and 2 − 1 additions, and then
// what two devices take: 2·1/2·400 B over each card, or a push and a pull.
TEST(Instances, AddTheirGradientsUpBeforeAnythingTravels) {
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kAllReduce, decide::SyncMethod::kParameterServer}) {
    Backward model = backward_graph(1, 10);
    Known known(std::move(model.graph), known_cluster({{}, {}}),
                NamedOps("aten.sigmoid_backward.default", 100), 10);
    const decide::Strategy strategy = each(known.problem(), {3, 2}, sync);
    known.run(strategy);
    const Plan& plan = known.plan();
    EXPECT_EQ(count(plan, TaskKind::kAccumulate), 3u);
    const bool reduces = sync == decide::SyncMethod::kAllReduce;
    EXPECT_EQ(count(plan, TaskKind::kAllReduce), reduces ? 1u : 0u);
    EXPECT_EQ(count(plan, TaskKind::kPush), reduces ? 0u : 1u);
    EXPECT_EQ(count(plan, TaskKind::kUpdate), reduces ? 2u : 1u);
    for (double bytes : expected_link_bytes(known.problem(), strategy)) EXPECT_EQ(bytes, 400);
    // In place: nothing but the gradients of the instances has their size.
    for (TaskId task : plan.task_ids()) {
      if (plan.kind[task] == TaskKind::kAccumulate) {
        EXPECT_TRUE(plan.allocates[task].empty());
      }
    }
    EXPECT_EQ(plan.static_memory[d(0)].parameters, 400);
  }
}

// All on one device: nothing moves, and the additions are chained, so that each waits for one
// instance alone.
TEST(Instances, OfAPipelinesOnlyStageStayWhereTheyAre) {
  Backward model = backward_graph(1, 10);
  Known known(std::move(model.graph), known_cluster({{}}),
              NamedOps("aten.sigmoid_backward.default", 100), 8);
  known.run(each(known.problem(), {4}, decide::SyncMethod::kAllReduce));
  const Plan& plan = known.plan();
  std::vector<TaskId> additions;
  for (TaskId task : plan.task_ids()) {
    EXPECT_FALSE(is_communication(plan.kind[task]));
    if (plan.kind[task] == TaskKind::kAccumulate) additions.push_back(task);
  }
  ASSERT_EQ(additions.size(), 3u);
  for (std::size_t i = 1; i < additions.size(); ++i) {
    const auto next = plan.successors[additions[i - 1]];
    EXPECT_TRUE(std::find(next.begin(), next.end(), additions[i]) != next.end());
    EXPECT_EQ(plan.predecessors[additions[i]], 2u);
  }
}

// What an op would replace several times in a step, or make again, exists once per device.
TEST(Instances, DoNotRepeatWhatIsReplacedOrTheSame) {
  const auto problem = decide::model_problem("resnet50-tiny", 3, 12);
  const graph::ModelGraph& graph = *problem->graph;
  const Plan plan = compile(*problem, each(*problem, {3, 2}, decide::SyncMethod::kAllReduce));
  std::size_t replacing = 0, sliced = 0;
  for (OpId op : problem->folded->ops) {
    if (graph.op(op).phase == graph::Phase::kUpdate || !problem->splits->sliceable[op]) continue;
    bool replaces = false, concat = false;
    for (TensorId out : graph.outputs(op)) {
      if (!out.valid()) continue;
      replaces |= graph.tensor(out).replaces.valid();
      concat |= problem->splits->rules[out].kind == graph::SplitKind::kConcat;
    }
    if (replaces) {
      EXPECT_EQ(instances(plan, op), 2u) << graph.op(op).name;
      ++replacing;
    } else if (instances(plan, op) == 5) {
      sliced += concat;
    }
  }
  EXPECT_GT(replacing, 10u);
  EXPECT_GT(sliced, 50u);
}

// Inputs of all of a device's samples lie there, in as many instances as they are read.
TEST(Instances, KeepTheInputsOfAllTheirSamples) {
  const auto problem = decide::model_problem("vgg19-tiny", 2, 12);
  const auto inputs = [&](const decide::Strategy& strategy) {
    return compile(*problem, strategy).static_memory[d(0)].buffers;
  };
  const decide::UnitDecision merged{.replicas = {{d(0), 2}, {d(1), 1}}};
  EXPECT_EQ(inputs(each(*problem, {2, 1}, decide::SyncMethod::kAllReduce)),
            inputs(decide::uniform_strategy(*problem, merged)));
}

TEST(Instances, AreNamedByPriorities) {
  const auto problem = decide::model_problem("vgg19-tiny", 2, 12);
  decide::Strategy strategy = each(*problem, {3, 1}, decide::SyncMethod::kAllReduce);
  strategy.order = decide::OrderPolicy::kPriority;
  const OpId first = problem->folded->ops.front();
  strategy.priorities = {{first, 2, 9}, {first, 0, 8}, {first, 1, 7}};
  const Plan plan = compile(*problem, strategy);
  std::vector<std::uint32_t> places;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kCompute && plan.op[task] == first) {
      places.push_back(plan.priority[task]);
    }
  }
  EXPECT_THAT(places, testing::ElementsAre(1u, 2u, 0u, testing::Gt(2u)));
}

// ---- plans of random strategies ----

// Every check there is, and the simulator that does what decision 8 says.
TEST(Instances, OfRandomStrategiesKeepEveryRuleOfAPlan) {
  Rng rng(5);
  sim::Simulator simulator;
  std::size_t accumulations = 0, merges = 0, rows = 0;
  int plans = 0, simulated_slowly = 0;
  for (const char* model : {"lenet5-tiny", "vgg19-tiny", "resnet50-tiny", "bert_large24-tiny",
                            "gnmt4-tiny", "xlnet_large24-tiny", "ncf-tiny"}) {
    const auto problem = decide::model_problem(model, 3, 13);
    for (int i = 0; i < 5; ++i) {
      SCOPED_TRACE(std::string(model) + " " + std::to_string(i));
      const decide::Strategy strategy = decide::random_instances(*problem, rng());
      decide::check_strategy(*problem, strategy, "random");
      const Plan plan = compile(*problem, strategy);  // verified, in builds with checks
      EXPECT_THAT(check_bytes(*problem, strategy, plan), testing::IsEmpty());
      const sim::SimResult fast = simulator.simulate_timeline(plan, strategy.order);
      EXPECT_THAT(sim::check_timeline(plan, fast, strategy.order), testing::IsEmpty());
      accumulations += count(plan, TaskKind::kAccumulate);
      merges += count(plan, TaskKind::kMerge);
      for (const Contribution& one : plan.contributions.values()) {
        rows += one.encoding == Encoding::kRows;
      }
      ++plans;
      if (plan.task_count() > 1200) continue;  // the reference is quadratic
      const sim::SimResult slow = sim::reference_simulate(plan, strategy.order);
      EXPECT_EQ(fast.dispatch, slow.dispatch);
      EXPECT_EQ(fast.step, slow.step);
      EXPECT_EQ(fast.peak_bytes, slow.peak_bytes);
      ++simulated_slowly;
    }
  }
  EXPECT_GT(accumulations, 500u);
  EXPECT_GT(merges, 100u);
  EXPECT_GT(rows, 10u);
  EXPECT_GT(simulated_slowly, plans / 4);
}

// ---- what is refused ----

std::string refused_when_compiled(const cost::Problem& problem, const decide::Strategy& strategy) {
  try {
    compile(problem, strategy);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(Instances, TooManyAreRefused) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 2, 12);
  EXPECT_EQ(refused_when_compiled(*problem, each(*problem, {13}, decide::SyncMethod::kAllReduce)),
            "strategy: micro_batches: 13 of a batch of 12; expected 1 to 12");
}

// The next value of a buffer made of what only a slice has cannot be made once per device.
TEST(Instances, ThatKeepWhatABufferIsMadeOfAreRefused) {
  support::GraphMaker make("keeps");
  const TensorId x = make.input("x", {support::kB, support::n(4)});
  const TensorId buffer = make.buffer("buffer", {support::n(4)});
  const TensorId own =
      make.op("aten.mean.dim", {graph::tensor_value(x), graph::list_value({graph::int_value(0)})},
              {support::n(4)});
  make.op("aten.mul.Tensor", {graph::tensor_value(own), graph::tensor_value(buffer)},
          {support::n(4)}, {.role = graph::TensorRole::kOutput, .replaces = buffer});
  auto problem = decide::toy_problem(std::move(make).build(), 2, 8);
  // As if the first op kept it for its own slice.
  auto splits = std::make_shared<graph::SplitAnalysis>(*problem->splits);
  splits->rules[own] = {graph::SplitKind::kLocal};
  splits->uses = {};
  for (OpId op : problem->graph->op_ids()) {
    std::vector<graph::OperandUse> uses(problem->splits->uses[op].begin(),
                                        problem->splits->uses[op].end());
    if (problem->graph->inputs(op)[0] == own) uses[0] = graph::OperandUse::kLocal;
    splits->uses.push_row(uses);
  }
  cost::Problem local = *problem;
  local.folded =
      std::make_shared<graph::FoldedGraph>(graph::fold_aliases(*problem->graph, *splits));
  local.splits = std::move(splits);
  EXPECT_EQ(refused_when_compiled(local, each(local, {1, 1}, decide::SyncMethod::kAllReduce)),
            "accepted");
  EXPECT_EQ(refused_when_compiled(local, each(local, {2, 1}, decide::SyncMethod::kAllReduce)),
            "keeps: op 'mul' runs once per device, but reads 'mean', of which each of several "
            "instances on one device has its own; expected one instance per device in the unit of "
            "op 'mean'");
}

}  // namespace
}  // namespace heterog::compiler
