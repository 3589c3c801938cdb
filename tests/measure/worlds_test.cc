// What one recorded step tells of a machine that is not as its cluster file says: costs of
// operators and links are fitted to a step of a hidden world, and plans are predicted by them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cluster/cluster_io.h"
#include "compiler/compile.h"
#include "cost/fitted_links.h"
#include "cost/hidden.h"
#include "cost/profile.h"
#include "graph/graph_io.h"
#include "measure/own_pace.h"
#include "measure/run_links.h"
#include "measure/run_profile.h"
#include "sim/improved_order.h"

namespace heterog::measure {
namespace {

using decide::SyncMethod;

sim::Simulated simulated(const cost::Problem& problem, const decide::Strategy& strategy) {
  return sim::simulated_in_order(strategy, compiler::compile(problem, strategy));
}

// |log| of a step under these costs by the step in the world.
double off(const cost::Problem& problem, const cost::Problem& world,
           const decide::Strategy& strategy) {
  return std::abs(std::log(to_seconds(simulated(problem, strategy).result.step) /
                           to_seconds(simulated(world, strategy).result.step)));
}

// The problem with what a step of `strategy` shows in the world: operators always, links if asked.
std::unique_ptr<const cost::Problem> fitted(const cost::Problem& believed,
                                            const cost::Problem& world,
                                            const decide::Strategy& strategy, bool links) {
  const sim::Simulated ran = simulated(world, strategy);
  const std::vector<runtime::MeasuredStep> steps = {
      {.begin = ran.result.start, .end = ran.result.end, .duration = ran.result.step}};
  const compiler::Plan planned = compiler::compile(believed, strategy);
  const RecordedRun run{believed, planned, steps};
  std::vector<cost::ProfileSource> profiles;
  for (DeviceTypeId type : id_range<DeviceTypeId>(believed.cluster->type_count())) {
    profiles.push_back({profile_of_runs(believed, {&run, 1}, type), "world"});
  }
  const cost::CalibratedModel analytic;
  std::shared_ptr<const cluster::Cluster> cluster = believed.cluster;
  if (links) {
    cluster = std::make_shared<const cluster::Cluster>(cost::with_fitted_links(
        *believed.cluster, cost::fit_links(*believed.cluster, measured_flows(ran.plan, steps))));
  }
  return cost::make_problem(believed.graph, cluster,
                            cost::ProfiledModel(*believed.graph, profiles, analytic),
                            believed.batch);
}

// Whatever communication a task ran beside, it takes the duration that the plan has for it, but for
// what rounding of paces leaves.
TEST(Worlds, ComputationBesideCommunicationIsTakenAtItsOwnPace) {
  const auto problem = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/resnet50.json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/office-mixed.json")),
      cost::CalibratedModel(), 192);
  for (const SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    const sim::Simulated ran = simulated(
        *problem, decide::uniform_strategy(*problem, decide::even_decision(*problem, sync)));
    const std::vector<runtime::MeasuredStep> own = at_own_pace(
        ran.plan,
        {{.begin = ran.result.start, .end = ran.result.end, .duration = ran.result.step}});
    std::size_t slowed = 0;
    for (TaskId task : ran.plan.task_ids()) {
      const Nanoseconds duration = ran.plan.duration[task];
      ASSERT_NEAR(own[0].end[task] - own[0].begin[task], duration, 50) << task.value();
      slowed += ran.result.end[task] - ran.result.start[task] > duration + 1000;
    }
    EXPECT_GT(slowed, 20u);
  }
}

// Of the plan that was recorded. What other plans would take is told less well: an all-reduce shows
// its slowest link alone.
TEST(Worlds, TheRecordedPlanIsPredictedByItsOperatorsAndLinksTogether) {
  for (const SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    double before = 0, without_links = 0, after = 0;
    for (const char* model : {"vgg19", "resnet50"}) {
      const auto believed =
          cost::make_problem(std::make_shared<const graph::ModelGraph>(
                                 graph::read_graph("models/" + std::string(model) + ".json.gz")),
                             std::make_shared<const cluster::Cluster>(
                                 cluster::load_cluster("configs/clusters/office-mixed.json")),
                             cost::CalibratedModel(), 192);
      const decide::Strategy recorded =
          decide::uniform_strategy(*believed, decide::even_decision(*believed, sync));
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        const auto world = cost::hidden_problem(*believed, {.seed = seed, .spread = 0.4});
        before += off(*believed, *world, recorded) / 6;
        without_links += off(*fitted(*believed, *world, recorded, false), *world, recorded) / 6;
        after += off(*fitted(*believed, *world, recorded, true), *world, recorded) / 6;
      }
    }
    SCOPED_TRACE(testing::Message() << before << " " << without_links << " " << after);
    EXPECT_GT(before, 0.1);
    EXPECT_LT(after, 0.05);
    EXPECT_LT(after, 0.5 * without_links);
  }
}

// One recorded step of even slices tells what unequal slices take: costs go along the model's curve
// from the size that was measured, and not on as they were there.
TEST(Worlds, OtherSlicesThanThoseRecordedArePredictedToo) {
  const auto believed = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/vgg19.json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/heterog-4gpu.json")),
      cost::CalibratedModel(), 96);
  const auto all = [&](const decide::UnitDecision& one) {
    return decide::uniform_strategy(*believed, one);
  };
  const decide::Strategy recorded = all(decide::even_decision(*believed, SyncMethod::kAllReduce));
  const decide::Strategy alone = all(decide::single_decision(DeviceId(0)));
  double before = 0, after = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const auto world = cost::hidden_problem(*believed, {.seed = seed, .spread = 0.4});
    before += off(*believed, *world, alone) / 3;
    after += off(*fitted(*believed, *world, recorded, true), *world, alone) / 3;
  }
  SCOPED_TRACE(testing::Message() << before << " " << after);
  EXPECT_GT(before, 0.05);
  EXPECT_LT(after, 0.001);
}

// Only one type ran the plan, so nothing is known of the other; and of the type that ran it,
// operators that it did not run are taken to be off as their class is.
TEST(Worlds, WhatWasNotRunIsOffAsItsClassIs) {
  const auto believed = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/vgg19-tiny.json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/heterog-4gpu.json")),
      cost::CalibratedModel(), 96);
  cost::Problem slow = *believed;
  slow.costs =
      cost::scaled(believed->costs, *believed->cluster, [](OpId, DeviceTypeId) { return 3.0; });
  // The first half of the groups on the first device, of one type, the others on the last.
  decide::Strategy strategy =
      decide::uniform_strategy(*believed, decide::single_decision(DeviceId(0)));
  for (UnitId unit : id_range<UnitId>(strategy.units.size())) {
    if (unit.value() >= strategy.units.size() / 2) {
      strategy.units[unit] = decide::single_decision(DeviceId(3));
    }
  }
  const sim::Simulated ran = simulated(slow, strategy);
  const std::vector<runtime::MeasuredStep> steps = {
      {.begin = ran.result.start, .end = ran.result.end, .duration = ran.result.step}};
  const RecordedRun run{slow, ran.plan, steps};
  const DeviceTypeId type = believed->cluster->device(DeviceId(0)).type;
  ASSERT_NE(type, believed->cluster->device(DeviceId(3)).type);
  const cost::Profile profile = profile_of_runs(*believed, {&run, 1}, type);
  ASSERT_TRUE(profile.finished);
  std::size_t unmeasured = 0;
  std::map<std::string, OpId> ops;
  for (OpId op : believed->graph->op_ids()) ops[believed->graph->op(op).name] = op;
  for (const cost::ProfiledOperator& op : profile.operators) {
    const OpId id = ops.at(op.ops.front());
    const auto of_batch = std::ranges::find(op.measured, 96, &cost::Measurement::samples);
    ASSERT_NE(of_batch, op.measured.end()) << op.form;
    const double ratio = of_batch->seconds / to_seconds(believed->costs.duration(id, type, 96));
    bool ran_here = false;
    for (TaskId task : ran.plan.task_ids()) {
      ran_here |= ran.plan.op[task] == id && ran.plan.device[task] == DeviceId(0);
    }
    if (ran_here) continue;
    ++unmeasured;
    // Shrunk twice, from 3: not as believed, and not beyond what was seen.
    EXPECT_GT(ratio, 1.8) << op.form;
    EXPECT_LT(ratio, 3.01) << op.form;
  }
  EXPECT_GT(unmeasured, 10u);
  EXPECT_FALSE(profile_of_runs(*believed, {}, type).finished);
}

}  // namespace
}  // namespace heterog::measure
