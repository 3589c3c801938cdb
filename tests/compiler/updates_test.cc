// Which parameters are updated together, and how long that takes.
#include "compiler/emit/updates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "compiler/compile.h"
#include "decide/problems.h"
#include "support/fused_graph.h"

namespace heterog::compiler {
namespace {

constexpr Bytes kParameter = 4000;

std::unique_ptr<const cost::Problem> problem_of(const std::vector<double>& weight_decays,
                                                std::size_t machines) {
  return decide::toy_problem(support::fused_graph(weight_decays), machines, 8);
}

decide::Strategy on_all(const cost::Problem& problem, decide::SyncMethod sync,
                        Bytes bucket_bytes = 0) {
  decide::UnitDecision decision;
  decision.sync = sync;
  for (DeviceId device : problem.cluster->device_ids()) decision.replicas.push_back({device, 1});
  decide::Strategy strategy = decide::uniform_strategy(problem, decision);
  strategy.bucket_bytes = bucket_bytes;
  return strategy;
}

// How many parameters each update task of a device has, in the order of the tasks.
std::vector<std::size_t> updates_on(const Plan& plan, std::size_t device) {
  std::vector<std::size_t> sizes;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kUpdate && plan.device[task] == DeviceId(device)) {
      sizes.push_back(plan.updated[task].size());
    }
  }
  return sizes;
}

using Sizes = std::vector<std::size_t>;

TEST(Updates, OnOneDeviceAreOneTask) {
  const auto problem = problem_of({0, 0, 0, 0, 0}, 1);
  const Plan plan = compile(
      *problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0))), {});
  EXPECT_EQ(updates_on(plan, 0), Sizes{5});
}

TEST(Updates, OfAnotherFormAreApart) {
  const auto problem = problem_of({0, 0.1, 0, 0.1, 0.1}, 1);
  const Plan plan = compile(
      *problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0))), {});
  EXPECT_EQ(updates_on(plan, 0), (Sizes{2, 3}));
}

TEST(Updates, FollowTheirCollective) {
  const auto problem = problem_of({0, 0, 0, 0, 0}, 2);
  const Plan together =
      compile(*problem, on_all(*problem, decide::SyncMethod::kAllReduce, 2 * kParameter), {});
  const Plan alone = compile(*problem, on_all(*problem, decide::SyncMethod::kAllReduce), {});
  for (std::size_t device : {0, 1}) {
    EXPECT_EQ(updates_on(together, device), (Sizes{2, 2, 1}));
    EXPECT_EQ(updates_on(alone, device), (Sizes{1, 1, 1, 1, 1}));
  }
  // A gradient of a bucket is read once, whoever of the task wants it.
  for (TaskId task : together.task_ids()) {
    std::vector<BufferId> reads(together.reads[task].begin(), together.reads[task].end());
    std::ranges::sort(reads);
    EXPECT_TRUE(std::ranges::adjacent_find(reads) == reads.end());
  }
}

// A replica that waits for a new value waits for no other.
TEST(Updates, OfServersAreAlone) {
  const auto problem = problem_of({0, 0, 0, 0, 0}, 2);
  const Plan plan =
      compile(*problem, on_all(*problem, decide::SyncMethod::kParameterServer, 1 << 20), {});
  Sizes all = updates_on(plan, 0), other = updates_on(plan, 1);
  all.insert(all.end(), other.begin(), other.end());
  EXPECT_EQ(all, (Sizes{1, 1, 1, 1, 1}));
}

// Gradients are not kept for longer than it takes to gather 64 MiB of parameters.
TEST(Updates, AreLimited) {
  const std::vector<double> many(40'000, 0.0);
  const auto problem = problem_of(many, 1);
  const Plan plan = compile(
      *problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0))), {});
  const Sizes sizes = updates_on(plan, 0);
  ASSERT_EQ(sizes.size(), 3);
  EXPECT_EQ(sizes[0], kTogetherBytes / kParameter);
  EXPECT_EQ(sizes[0] + sizes[1] + sizes[2], many.size());
}

// One launch, and the work of all beyond their launches.
TEST(Updates, TakeOneLaunch) {
  cluster::ClusterBuilder builder("one");
  cluster::DeviceType type = cluster::test_type();
  type.launch_seconds = 0.4e-6;
  builder.add_machine(cluster::test_machine("m", 1, std::move(type)));
  const auto problem = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(support::fused_graph({0, 0, 0, 0, 0})),
      std::make_shared<const cluster::Cluster>(std::move(builder).build("one")),
      cost::ConstantModel(1e-6), 8);
  const Plan plan = compile(
      *problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0))), {});
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kUpdate) continue;
    EXPECT_EQ(plan.duration[task], 400 + 5 * 600);
  }
}

}  // namespace
}  // namespace heterog::compiler
