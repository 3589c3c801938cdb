// Pipelines as planners make them train as one device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cluster/cluster_io.h"
#include "oracle/simulated_oracle.h"
#include "planner/registry.h"
#include "runtime/check/verify.h"
#include "runtime/jobs.h"

namespace heterog::runtime {
namespace {

struct Case {
  const char* model;
  const char* cluster;
  std::int64_t batch;
  int micro_batches;
};

class Pipelines : public testing::TestWithParam<Case> {};

TEST_P(Pipelines, TrainAsOneDevice) {
  const auto [model, name, batch, micro_batches] = GetParam();
  const auto cluster = std::make_shared<const cluster::Cluster>(
      cluster::load_cluster("configs/clusters/" + std::string(name) + ".json"));
  const std::shared_ptr<const cost::Problem> problem =
      cost::make_problem(std::make_shared<const graph::ModelGraph>(
                             graph::read_graph("models/" + std::string(model) + ".json.gz")),
                         cluster, cost::CalibratedModel(), batch);
  const planner::Registry registry(planner::builtin_planners());
  ThreadPool pool(1);
  for (const char* planner :
       {"spp:turns=strict,", "spp:turns=priorities,recompute=all,",
        "gpipe:turns=strict,recompute=all,", "pipedream:turns=priorities,replicas=in-turn,",
        "hetpipe:turns=strict,", "accumulate:"}) {
    SCOPED_TRACE(planner);
    oracle::SimulatedOracle oracle(*problem, pool);
    planner::PlannerContext context{.oracle = oracle};
    const std::string request =
        std::string(planner) + "micro_batches=" + std::to_string(micro_batches);
    const auto found = registry.make(request, *cluster)->plan(context);
    const auto entries = [](const compiler::UnitDecision& unit) { return unit.replicas.size(); };
    EXPECT_GE(std::ranges::max(found.strategy.units, {}, entries).replicas.size(),
              static_cast<std::size_t>(micro_batches));
    const TestJob test = make_test_job(problem, found.strategy);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Pipelines,
                         testing::Values(Case{"bert_large24-tiny", "heterog-4gpu", 17, 3},
                                         Case{"gnmt4-tiny", "heterog-4gpu", 16, 5},
                                         Case{"transformer6-tiny", "office-mixed", 17, 2},
                                         Case{"vgg19-tiny", "spp-a", 16, 2}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heterog::runtime
