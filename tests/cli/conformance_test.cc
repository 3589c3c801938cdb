// What every planner of the registry must do, on real graphs and clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "cli/planner_table.h"
#include "oracle/simulated_oracle.h"
#include "search/problems.h"
#include "search/registry.h"
#include "sim/improved_order.h"

namespace heterog::cli {
namespace {

using compiler::Plan;
using compiler::TaskKind;
using search::load_test_problem;
using search::PlannerContext;
using search::PlannerEntry;
using search::PlannerResult;

struct Case {
  const char* model;
  const char* cluster;
  std::int64_t batch;
};

PlannerResult run(const PlannerEntry& entry, const cost::Problem& problem, int threads) {
  ThreadPool pool(threads);
  oracle::SimulatedOracle simulator(problem, pool);
  PlannerContext context{.oracle = simulator, .rng = Rng(7)};
  context.budget.evaluations = 24;
  return entry.make({}, *problem.cluster)->plan(context);
}

// Every sample of every op has a task, and every parameter an update.
void expect_every_op_placed(const cost::Problem& problem, const Plan& plan) {
  std::map<OpId, std::int64_t> samples;
  std::map<TensorId, int> updates;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kCompute) {
      samples[plan.op[task]] += plan.end[task] - plan.begin[task];
    }
    for (TensorId parameter : plan.updated[task]) ++updates[parameter];
  }
  for (OpId op : problem.folded->ops) {
    ASSERT_GE(samples[op], problem.batch) << problem.graph->op(op).name;
  }
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    ASSERT_GE(updates[chain.parameter], 1) << problem.graph->tensor(chain.parameter).name;
  }
}

// A plan that does not fit names the device, by how much, and what was starting.
void expect_explained(const cost::Problem& problem, const Plan& plan,
                      const sim::SimResult& result) {
  Bytes most = 0;
  for (DeviceId device : problem.cluster->device_ids()) {
    most = std::max(most, result.peak_bytes[device] - plan.capacity[device]);
  }
  ASSERT_EQ(result.feasible(), most <= 0);
  if (result.feasible()) return;
  const sim::OutOfMemory& reason = *result.out_of_memory;
  ASSERT_TRUE(reason.device.valid());
  EXPECT_EQ(reason.missing_bytes, result.peak_bytes[reason.device] - plan.capacity[reason.device]);
  if (!reason.task.valid()) {
    EXPECT_GT(plan.static_memory[reason.device].total(), plan.capacity[reason.device]);
  }
}

class Conformance : public testing::TestWithParam<Case> {};

TEST_P(Conformance, EveryPlannerIsDeterministicAndPlacesEverything) {
  const auto problem = load_test_problem(GetParam().model, GetParam().cluster, GetParam().batch);
  for (const PlannerEntry& entry : planner_registry().entries()) {
    if (entry.small_problems && problem->cluster->device_count() > 4) continue;  // it refuses
    SCOPED_TRACE(std::string(entry.name));
    const PlannerResult one = run(entry, *problem, 1);
    const PlannerResult two = run(entry, *problem, 2);
    EXPECT_EQ(one.strategy, two.strategy);
    EXPECT_EQ(one.evaluation.step, two.evaluation.step);
    EXPECT_EQ(one.evaluations, two.evaluations);
    EXPECT_GE(one.evaluations, 1);

    const auto& [plan, result] =
        sim::simulated_in_order(one.strategy, compiler::compile(*problem, one.strategy));
    EXPECT_EQ(result.step, one.evaluation.step);
    EXPECT_EQ(result.feasible(), one.evaluation.feasible);
    EXPECT_EQ(one.evaluation.missing_bytes == 0, one.evaluation.feasible);
    expect_every_op_placed(*problem, plan);
    expect_explained(*problem, plan, result);
  }
}

// Every planner of the program is among those that are tested.
TEST(EveryPlanner, WalksWhatTheProgramHas) {
  std::vector<std::string_view> names;
  for (const PlannerEntry& entry : planner_registry().entries()) names.push_back(entry.name);
  for (const char* name : {"ev-ar", "spp", "annealing", "exact", "portfolio", "policy"}) {
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
  }
}

// Says what it refuses, which searches drop.
class TellingOracle final : public oracle::Oracle {
 public:
  TellingOracle(const cost::Problem& problem, ThreadPool& threads) : inner_(problem, threads) {}
  std::vector<oracle::Measured> measure(std::span<const decide::Strategy> strategies) override {
    try {
      return inner_.measure(strategies);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      throw;
    }
  }
  const cost::Problem& problem() const override { return inner_.problem(); }

 private:
  oracle::SimulatedOracle inner_;
};

// Some devices have no sample of anything then, and there is nothing that they could give away.
TEST(EveryPlanner, NoPlannerAsksForWhatIsNoStrategyWhereTheBatchIsSmallerThanTheCluster) {
  ThreadPool pool(2);
  for (const auto& [model, batch] :
       {std::pair("vgg19", 1), {"resnet50-tiny", 7}, {"mobilenet_v2", 5}}) {
    const auto problem = load_test_problem(model, "heterog-8gpu", batch);
    for (const PlannerEntry& entry : planner_registry().entries()) {
      if (entry.small_problems) continue;
      SCOPED_TRACE(std::string(model) + ", batch " + std::to_string(batch) + ", " +
                   std::string(entry.name));
      TellingOracle oracle(*problem, pool);
      PlannerContext context{.oracle = oracle, .rng = Rng(1)};
      context.budget.evaluations = 120;
      const PlannerResult found = entry.make({}, *problem->cluster)->plan(context);
      EXPECT_EQ(found.refused, 0);
      expect_every_op_placed(*problem, compiler::compile(*problem, found.strategy));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RealGraphs, Conformance,
                         testing::Values(Case{"vgg19", "heterog-8gpu", 192},
                                         Case{"vgg19", "heterog-4gpu", 96},
                                         Case{"nasnet_a_large-tiny", "heterog-4gpu", 16},
                                         Case{"bert_large24", "heterog-4gpu", 32}),
                         [](const auto& info) {
                           std::string name =
                               std::string(info.param.model) + "_" + info.param.cluster;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heterog::cli
