// Plans that reuse parts of the last one, against plans compiled from nothing.
#include "compiler/recompile.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "cluster/cluster_io.h"
#include "compiler/problems.h"
#include "cost/cost_model.h"

namespace heterog::compiler {
namespace {

// Everything that a plan holds.
void expect_equal(const Plan& a, const Plan& b, int step) {
  ASSERT_EQ(a.task_count(), b.task_count()) << "step " << step;
  EXPECT_TRUE(a.kind == b.kind && a.op == b.op && a.tensor == b.tensor) << "step " << step;
  EXPECT_TRUE(a.device == b.device && a.peer == b.peer) << "step " << step;
  EXPECT_TRUE(a.begin == b.begin && a.end == b.end) << "step " << step;
  EXPECT_TRUE(a.duration == b.duration && a.moved_bytes == b.moved_bytes) << "step " << step;
  EXPECT_TRUE(a.payload == b.payload && a.carried == b.carried) << "step " << step;
  EXPECT_TRUE(a.contributions == b.contributions) << "step " << step;
  EXPECT_TRUE(a.rank == b.rank && a.priority == b.priority) << "step " << step;
  EXPECT_TRUE(a.successors == b.successors) << "step " << step;
  EXPECT_TRUE(a.predecessors == b.predecessors) << "step " << step;
  EXPECT_TRUE(a.holds == b.holds && a.participants == b.participants) << "step " << step;
  EXPECT_TRUE(a.buffers == b.buffers && a.allocates == b.allocates) << "step " << step;
  EXPECT_TRUE(a.reads == b.reads && a.readers == b.readers) << "step " << step;
  EXPECT_TRUE(a.workspace == b.workspace && a.capacity == b.capacity) << "step " << step;
  for (DeviceId device : id_range<DeviceId>(a.device_count)) {
    const StaticMemory &x = a.static_memory[device], &y = b.static_memory[device];
    EXPECT_TRUE(x.parameters == y.parameters && x.optimizer_state == y.optimizer_state &&
                x.buffers == y.buffers && x.reserve == y.reserve)
        << "step " << step;
  }
}

UnitDecision random_decision(const cost::Problem& problem, Rng& rng) {
  const std::size_t devices = problem.cluster->device_count();
  const SyncMethod sync = rng.below(2) ? SyncMethod::kParameterServer : SyncMethod::kAllReduce;
  switch (rng.below(4)) {
    case 0:
      return single_decision(DeviceId(rng.below(devices)));
    case 1:
      return even_decision(problem, sync);
    case 2:
      return proportional_decision(problem, sync);
    default: {
      UnitDecision decision{.replicas = {}, .sync = sync};
      for (std::size_t d = 0; d < devices; ++d) {
        const auto weight = static_cast<double>(rng.below(4));
        if (weight > 0) decision.replicas.push_back({DeviceId(d), weight});
      }
      return decision.replicas.empty() ? single_decision(DeviceId(0)) : decision;
    }
  }
}

std::unique_ptr<const cost::Problem> four_gpus(const std::string& model) {
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + model + ".json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/heterog-4gpu.json")),
      cost::RooflineModel(), 16);
}

// A walk: one unit changes at a time, sometimes several, the size of buckets, or nothing.
void walk(std::unique_ptr<const cost::Problem> problem, int steps) {
  Rng rng(static_cast<std::uint64_t>(steps));
  Recompiler recompiler(*problem);
  Strategy strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  std::size_t copied = 0, all = 0;
  for (int step = 0; step < steps; ++step) {
    const Plan& plan = recompiler.compile(strategy);
    expect_equal(plan, compile(*problem, strategy), step);
    if (testing::Test::HasFailure()) return;
    copied += recompiler.copied_tasks();
    all += plan.task_count();
    for (std::size_t change = rng.below(8) ? 1 : rng.below(10); change > 0; --change) {
      strategy.units[UnitId(rng.below(strategy.units.size()))] = random_decision(*problem, rng);
    }
    if (rng.below(20) == 0) strategy.bucket_bytes = rng.below(2) ? 1 << 20 : 0;
    if (rng.below(40) == 0) {
      strategy = uniform_strategy(*problem, random_decision(*problem, rng));
    }
  }
  EXPECT_GT(copied, all / 4) << "hardly anything is copied";
}

TEST(Recompiler, GivesThePlanThatCompileGives) {
  walk(four_gpus("vgg19-tiny"), 400);
  walk(four_gpus("bert_large24-tiny"), 150);
  walk(four_gpus("resnet50-tiny"), 60);
  walk(four_gpus("gnmt4-tiny"), 60);
  walk(four_gpus("transformer6-tiny"), 60);
  walk(four_gpus("xlnet_large24-tiny"), 60);
  walk(four_gpus("ncf-tiny"), 300);
}

TEST(Recompiler, GivesThePlanThatCompileGivesWithOverheads) {
  walk(model_problem("vgg19-tiny", 3, 16, 1e-9), 100);
  walk(model_problem("ncf-tiny", 3, 16, 1e-9), 100);
}

}  // namespace
}  // namespace heterog::compiler
